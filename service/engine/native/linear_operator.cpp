// `trifold.Linear`: what stands between `linear.h` and ONNX Runtime.
//
// Inputs: x (..., depth), and the constants weights, scales, column sums and, maybe, bias of `linear.h`.
// Output: (..., columns).

#include <memory>

#include "kernels.h"
#include "operators.h"

namespace trifold {
namespace {

enum Input : size_t { kX, kWeights, kScales, kColumnSums, kBias, kInputs };

struct Kernel {
  Linear linear{};
  OrtMemoryInfo* memory = nullptr;

  ~Kernel() {
    if (memory != nullptr) api->ReleaseMemoryInfo(memory);
  }
};

// Points at a constant's numbers, of which there must be so many; they are the session's, which outlives its kernels.
template <typename T>
OrtStatus* Find(const OrtKernelInfo* info, Input place, int64_t count, const T** data) {
  int is_constant = 0;
  const OrtValue* value = nullptr;
  RETURN_IF_FAILED(api->KernelInfoGetConstantInput_tensor(info, place, &is_constant, &value));
  if (!is_constant || value == nullptr) return Invalid("trifold.Linear: an input is no constant");
  Shape shape;
  const void* numbers;
  RETURN_IF_FAILED(Read(value, &shape, &numbers));
  int64_t found = 1;
  for (size_t i = 0; i < shape.rank; ++i) found *= shape.sizes[i];
  if (found != count) return Invalid("trifold.Linear: a constant has another size");
  *data = static_cast<const T*>(numbers);
  return nullptr;
}

OrtStatus* Create(const OrtCustomOp*, const OrtApi*, const OrtKernelInfo* info, void** created) {
  auto kernel = std::make_unique<Kernel>();
  Linear& linear = kernel->linear;
  int64_t zero_point, by_rows;
  RETURN_IF_FAILED(api->KernelInfoGetAttribute_int64(info, "depth", &linear.depth));
  RETURN_IF_FAILED(api->KernelInfoGetAttribute_int64(info, "columns", &linear.columns));
  RETURN_IF_FAILED(api->KernelInfoGetAttribute_float(info, "step", &linear.step));
  RETURN_IF_FAILED(api->KernelInfoGetAttribute_int64(info, "zero_point", &zero_point));
  RETURN_IF_FAILED(api->KernelInfoGetAttribute_int64(info, "by_rows", &by_rows));
  if (linear.depth < 1 || linear.columns < 1) return Invalid("trifold.Linear: depth and columns are 1 at least");
  linear.zero_point = static_cast<int32_t>(zero_point);
  linear.by_rows = by_rows != 0;

  const int64_t padded = linear.Panels() * kPanelColumns;
  const int64_t numbers = padded * linear.Groups() * kGroup;
  RETURN_IF_FAILED(Find(info, kWeights, numbers, &linear.weights));
  RETURN_IF_FAILED(Find(info, kScales, padded, &linear.scales));
  RETURN_IF_FAILED(Find(info, kColumnSums, padded, &linear.column_sums));
  size_t inputs;
  RETURN_IF_FAILED(api->KernelInfo_GetInputCount(info, &inputs));
  if (inputs > kBias) RETURN_IF_FAILED(Find(info, kBias, linear.columns, &linear.bias));
  RETURN_IF_FAILED(api->CreateCpuMemoryInfo(OrtArenaAllocator, OrtMemTypeDefault, &kernel->memory));
  *created = kernel.release();
  return nullptr;
}

OrtStatus* Compute(void* created, OrtKernelContext* context) {
  const Kernel& kernel = *static_cast<const Kernel*>(created);
  const Linear& linear = kernel.linear;
  Shape shape;
  const void* x;
  void* y;
  RETURN_IF_FAILED(Read(context, kX, &shape, &x));
  if (shape.rank == 0 || shape.sizes[shape.rank - 1] != linear.depth)
    return Invalid("trifold.Linear: rows have another length");
  int64_t rows = 1;
  for (size_t i = 0; i + 1 < shape.rank; ++i) rows *= shape.sizes[i];
  shape.sizes[shape.rank - 1] = linear.columns;
  RETURN_IF_FAILED(Write(context, 0, shape, &y));
  if (rows == 0) return nullptr;

  const Kernels& kernels = *FindKernels();
  OrtAllocator* allocator;
  void* scratch;
  RETURN_IF_FAILED(api->KernelContext_GetAllocator(context, kernel.memory, &allocator));
  OrtStatus* status = api->AllocatorAlloc(allocator, kernels.scratch_bytes(linear, rows), &scratch);
  if (status == nullptr) {
    kernels.multiply(linear, static_cast<const float*>(x), rows, static_cast<float*>(y), scratch, Workers(context));
    status = api->AllocatorFree(allocator, scratch);
  }
  api->ReleaseAllocator(allocator);
  return status;
}

ONNXTensorElementDataType InputType(const OrtCustomOp*, size_t place) {
  if (place == kWeights) return ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8;
  return place == kColumnSums ? ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32 : ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT;
}

}  // namespace

OrtCustomOp LinearOperator() {
  OrtCustomOp linear = Operator();
  linear.GetName = [](const OrtCustomOp*) { return "Linear"; };
  linear.GetInputTypeCount = [](const OrtCustomOp*) -> size_t { return kInputs; };
  linear.GetInputType = InputType;
  linear.GetInputCharacteristic = [](const OrtCustomOp*, size_t place) {
    return place == kBias ? INPUT_OUTPUT_OPTIONAL : INPUT_OUTPUT_REQUIRED;
  };
  linear.GetOutputTypeCount = [](const OrtCustomOp*) -> size_t { return 1; };
  linear.GetOutputType = [](const OrtCustomOp*, size_t) { return ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT; };
  linear.CreateKernelV2 = Create;
  linear.KernelComputeV2 = Compute;
  linear.KernelDestroy = [](void* kernel) { delete static_cast<Kernel*>(kernel); };
  return linear;
}

}  // namespace trifold
