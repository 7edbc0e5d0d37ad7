// `trifold.RaggedAttention`: what stands between `attention.h` and ONNX Runtime where there is no cache.
//
// Inputs are those of `attention_inputs.h` without past_key, past_value and slots. A head's width is what the query's is.

#include <cmath>
#include <memory>

#include "attention_inputs.h"
#include "kernels.h"

namespace trifold {
namespace {

OrtStatus* Create(const OrtCustomOp*, const OrtApi*, const OrtKernelInfo* info, void** created) {
  auto attention = std::make_unique<Attention>();
  RETURN_IF_FAILED(ReadHeads(info, attention.get()));
  int64_t is_causal;
  RETURN_IF_FAILED(api->KernelInfoGetAttribute_int64(info, "is_causal", &is_causal));
  attention->is_causal = is_causal != 0;
  *created = attention.release();
  return nullptr;
}

OrtStatus* Compute(void* created, OrtKernelContext* context) {
  Attention attention = *static_cast<const Attention*>(created);
  Tensor inputs[kInputs];
  AttentionRun run{};
  RETURN_IF_FAILED(ReadInputs(context, inputs, &run));
  const bool is_packed = !inputs[kKey].is_given;
  const int64_t heads = attention.heads + (is_packed ? 2 * attention.kv_heads : 0);
  attention.width = inputs[kQuery].shape.sizes[2] / heads;
  if (attention.width == 0) return Invalid("trifold.Attention: heads have no numbers");
  if (attention.scale == 0) attention.scale = 1 / std::sqrt(static_cast<float>(attention.width));
  RETURN_IF_FAILED(FindNewTokens(attention, inputs, run.rows, &run));
  RETURN_IF_FAILED(FindLast(inputs, &run));
  for (int64_t row = 0; row < run.rows; ++row)
    if (run.last[row] < 0 || run.last[row] >= run.tokens)
      return Invalid("trifold.Attention: a row's last token is not among its tokens");
  RETURN_IF_FAILED(FindRotary(attention, inputs, &run));
  RETURN_IF_FAILED(FindBias(attention, inputs, &run));
  RETURN_IF_FAILED(WriteOutput(attention, context, &run));
  if (run.rows > 0 && run.tokens > 0) FindKernels()->attend_ragged(attention, run, Workers(context));
  return nullptr;
}

ONNXTensorElementDataType InputType(const OrtCustomOp*, size_t place) {
  const bool is_number = place == kLastPositions || place == kTotalLength;
  return is_number ? ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32 : ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT;
}

}  // namespace

OrtCustomOp RaggedAttentionOperator() {
  OrtCustomOp one = Operator();
  one.GetName = [](const OrtCustomOp*) { return "RaggedAttention"; };
  one.GetInputType = InputType;
  one.GetOutputType = [](const OrtCustomOp*, size_t) { return ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT; };
  one.GetInputTypeCount = [](const OrtCustomOp*) -> size_t { return kSlots; };
  one.GetInputCharacteristic = [](const OrtCustomOp*, size_t place) {
    const bool is_required = place == kQuery || place == kLastPositions || place == kTotalLength;
    return is_required ? INPUT_OUTPUT_REQUIRED : INPUT_OUTPUT_OPTIONAL;
  };
  one.GetOutputTypeCount = [](const OrtCustomOp*) -> size_t { return 1; };
  one.CreateKernelV2 = Create;
  one.KernelComputeV2 = Compute;
  one.KernelDestroy = [](void* attention) { delete static_cast<Attention*>(attention); };
  return one;
}

}  // namespace trifold
