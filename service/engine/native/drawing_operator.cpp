// `trifold.Draw`: what stands between `drawing.h` and ONNX Runtime.
//
// Inputs: logits (rows, vocabulary), factors, top_p and min_p (rows), chances (rows, rounds, 2). Output: ids (rows).

#include "drawing.h"

#include <initializer_list>

#include "kernels.h"
#include "operators.h"

namespace trifold {
namespace {

enum Input : size_t { kLogits, kFactors, kTopP, kMinP, kChances, kInputs };

OrtStatus* Compute(void*, OrtKernelContext* context) {
  Shape shapes[kInputs];
  const void* inputs[kInputs];
  for (size_t place = 0; place < kInputs; ++place) {
    RETURN_IF_FAILED(Read(context, place, &shapes[place], &inputs[place]));
    if (shapes[place].rank == 0 || shapes[place].sizes[0] != shapes[kLogits].sizes[0])
      return Invalid("trifold.Draw: every input has a number for each row");
  }
  const Shape &logits = shapes[kLogits], &chances = shapes[kChances];
  if (logits.rank != 2 || logits.sizes[1] < 1) return Invalid("trifold.Draw: there are no tokens to draw of");
  if (chances.rank != 3 || chances.sizes[1] < 1 || chances.sizes[2] != 2)
    return Invalid("trifold.Draw: chances come in twos");
  for (size_t place : {kFactors, kTopP, kMinP})
    if (shapes[place].rank != 1) return Invalid("trifold.Draw: a row has one number of each kind");
  Draw draw{logits.sizes[0],
            logits.sizes[1],
            chances.sizes[1],
            static_cast<const float*>(inputs[kLogits]),
            static_cast<const float*>(inputs[kFactors]),
            static_cast<const double*>(inputs[kTopP]),
            static_cast<const float*>(inputs[kMinP]),
            static_cast<const double*>(inputs[kChances]),
            nullptr};
  void* ids;
  RETURN_IF_FAILED(Write(context, 0, shapes[kFactors], &ids));
  draw.ids = static_cast<int64_t*>(ids);
  if (draw.rows > 0) FindKernels()->draw(draw, Workers(context));
  return nullptr;
}

ONNXTensorElementDataType InputType(const OrtCustomOp*, size_t place) {
  const bool is_double = place == kTopP || place == kChances;
  return is_double ? ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE : ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT;
}

}  // namespace

OrtCustomOp DrawOperator() {
  OrtCustomOp one = Operator();
  one.GetName = [](const OrtCustomOp*) { return "Draw"; };
  one.GetInputTypeCount = [](const OrtCustomOp*) -> size_t { return kInputs; };
  one.GetInputType = InputType;
  one.GetInputCharacteristic = [](const OrtCustomOp*, size_t) { return INPUT_OUTPUT_REQUIRED; };
  one.GetOutputTypeCount = [](const OrtCustomOp*) -> size_t { return 1; };
  one.GetOutputType = [](const OrtCustomOp*, size_t) { return ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64; };
  one.CreateKernelV2 = [](const OrtCustomOp*, const OrtApi*, const OrtKernelInfo*, void** created) -> OrtStatus* {
    *created = nullptr;
    return nullptr;
  };
  one.KernelComputeV2 = Compute;
  one.KernelDestroy = [](void*) {};
  return one;
}

}  // namespace trifold
