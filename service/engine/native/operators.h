// What our operators have in common as ONNX Runtime sees them.

#pragma once

#include "onnxruntime/onnxruntime_c_api.h"
#include "threads.h"

#define RETURN_IF_FAILED(expression) \
  if (OrtStatus* const failed_with = (expression)) return failed_with

namespace trifold {

constexpr uint32_t kApiVersion = 18;  // the oldest that has all that is called here
constexpr size_t kMostDimensions = 8;

extern const OrtApi* api;

// ONNX Runtime's threads.
struct Workers : Threads {
  explicit Workers(const OrtKernelContext* context) : context(context) {}
  void ForEach(size_t count, void (*run)(void*, size_t), void* data) const override;
  const OrtKernelContext* context;
};

struct Shape {
  int64_t sizes[kMostDimensions];
  size_t rank;
};

OrtStatus* Invalid(const char* message);

// Reads an input's shape and says where its numbers are.
OrtStatus* Read(const OrtValue* value, Shape* shape, const void** data);
OrtStatus* Read(const OrtKernelContext* context, size_t place, Shape* shape, const void** data);

// Takes memory for an output, or what was bound to it.
OrtStatus* Write(OrtKernelContext* context, size_t place, const Shape& shape, void** data);

// Returns what is the same for all operators: version 1, on the processor, inputs and outputs in its memory.
OrtCustomOp Operator();

OrtCustomOp LinearOperator();
OrtCustomOp AttentionOperator(bool is_half);
OrtCustomOp RaggedAttentionOperator();
OrtCustomOp DrawOperator();
OrtCustomOp LogTotalOperator();
OrtCustomOp LikeliestOperator();

}  // namespace trifold
