// `trifold.Attention`, and `trifold.HalfAttention`, whose cache has numbers of 16 bits: what stands between `attention.h` and
// ONNX Runtime.
//
// Inputs are those of `attention_inputs.h`. Where slots are given, and not empty, the past has other rows than the new
// tokens: T is 1, row b is that of slot slots[b] of the past, and rows of one slot, which stand side by side, are tokens in
// a row. Where the past is a source (`is_to_source`), key and value are its last token of each slot, rows of one slot
// see all of it, and may stand anywhere. The other outputs are past_key and past_value with the new tokens, in place if
// they are bound so.

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>

#include "attention_inputs.h"
#include "kernels.h"

namespace trifold {
namespace {

enum Output : size_t { kPresentKey = 1, kPresentValue, kOutputs };

constexpr int64_t kMostSharing = 16;  // query heads of a key head

bool HasSlots(const Tensor* inputs) { return inputs[kSlots].is_given && inputs[kSlots].shape.sizes[0] > 0; }

struct Kernel {
  Attention attention{};
  bool is_half = false;
};

template <bool IsHalf>
OrtStatus* Create(const OrtCustomOp*, const OrtApi*, const OrtKernelInfo* info, void** created) {
  auto kernel = std::make_unique<Kernel>();
  Attention& attention = kernel->attention;
  kernel->is_half = IsHalf;
  RETURN_IF_FAILED(ReadHeads(info, &attention));
  RETURN_IF_FAILED(api->KernelInfoGetAttribute_int64(info, "width", &attention.width));
  int64_t is_to_source;
  RETURN_IF_FAILED(api->KernelInfoGetAttribute_int64(info, "is_to_source", &is_to_source));
  attention.is_causal = true;
  attention.is_to_source = is_to_source != 0;
  const int64_t width = attention.width;
  if (attention.heads > kMostSharing * attention.kv_heads)
    return Invalid("trifold.Attention: at most 16 may share a key head");
  if (width < kWidthUnit || width % kWidthUnit != 0 || width > kGreatestWidth)
    return Invalid("trifold.Attention: a head's width is a multiple of 16, at most 256");
  *created = kernel.release();
  return nullptr;
}

// Says where each row's past ends; new tokens must have room behind it.
OrtStatus* FindPast(const Attention& attention, const Tensor* inputs, AttentionRun* run) {
  const Shape& shape = inputs[kPastKey].shape;
  if (shape.rank != 4 || (!HasSlots(inputs) && shape.sizes[0] != run->rows) || shape.sizes[1] != attention.kv_heads ||
      shape.sizes[3] != attention.width || inputs[kPastValue].shape.rank != 4 ||
      std::memcmp(shape.sizes, inputs[kPastValue].shape.sizes, 4 * sizeof shape.sizes[0]) != 0)
    return Invalid("trifold.Attention: the past has another shape");
  run->capacity = shape.sizes[2];
  RETURN_IF_FAILED(FindLast(inputs, run));
  const Shape& total = inputs[kTotalLength].shape;
  if (total.rank > 1 || (total.rank == 1 && total.sizes[0] != 1))
    return Invalid("trifold.Attention: there is one total length");
  run->before = *static_cast<const int32_t*>(inputs[kTotalLength].data) - run->tokens;
  for (int64_t row = 0; row < run->rows; ++row) {
    const int64_t before = run->Before(row);
    if (before < 0 || run->last[row] < before || before + run->tokens > run->capacity)
      return Invalid("trifold.Attention: a row's tokens have no room in the cache");
  }
  return nullptr;
}

// Puts rows of one slot together, if slots are given; `segments` keeps what is found.
OrtStatus* FindSegments(const Attention& attention, const Tensor* inputs, std::unique_ptr<Segment[]>* segments,
                        AttentionRun* run) {
  const Shape& shape = inputs[kSlots].shape;
  if (!HasSlots(inputs)) return nullptr;
  if (shape.rank != 1 || shape.sizes[0] != run->rows || run->tokens != 1)
    return Invalid("trifold.Attention: there is one slot a row, and one token");
  segments->reset(new (std::nothrow) Segment[run->rows]);
  if (*segments == nullptr) return Invalid("trifold.Attention: there is no memory left");
  const int32_t* slots = static_cast<const int32_t*>(inputs[kSlots].data);
  for (int64_t row = 0; row < run->rows; ++row) {
    Segment* last = run->segment_count > 0 ? segments->get() + run->segment_count - 1 : nullptr;
    if (slots[row] < 0 || slots[row] >= inputs[kPastKey].shape.sizes[0])
      return Invalid("trifold.Attention: slots are rows of the past");
    if (last && slots[row] < last->slot && !attention.is_to_source) return Invalid("trifold.Attention: slots ascend");
    const bool is_another = last == nullptr || slots[row] != last->slot;
    // Tokens of a slot come one behind the other; those that see a source see it to the same token.
    if (!is_another && run->last[row] == last->before + (attention.is_to_source ? 0 : last->tokens)) {
      ++last->tokens;
    } else if (is_another || attention.is_to_source) {
      (*segments)[run->segment_count++] = {row, 1, slots[row], run->last[row]};
    } else {
      return Invalid("trifold.Attention: rows of one slot are tokens in a row");
    }
  }
  run->segments = segments->get();
  for (int64_t i = 0; i < run->segment_count; ++i)
    run->longest_segment = std::max(run->longest_segment, run->segments[i].tokens);
  return nullptr;
}

// Takes the memory of a present, which has what its past has.
OrtStatus* Present(OrtKernelContext* context, Output place, const Tensor& past, size_t number_bytes, void** present) {
  RETURN_IF_FAILED(Write(context, place, past.shape, present));
  if (*present == past.data) return nullptr;
  size_t count = 1;
  for (size_t i = 0; i < past.shape.rank; ++i) count *= static_cast<size_t>(past.shape.sizes[i]);
  std::memcpy(*present, past.data, count * number_bytes);
  return nullptr;
}

OrtStatus* Compute(void* created, OrtKernelContext* context) {
  const Kernel& kernel = *static_cast<const Kernel*>(created);
  const Attention& attention = kernel.attention;
  Tensor inputs[kInputs];
  AttentionRun run{};
  RETURN_IF_FAILED(ReadInputs(context, inputs, &run));
  const bool is_by_slots = attention.is_to_source && HasSlots(inputs);
  const int64_t key_rows = is_by_slots ? inputs[kPastKey].shape.sizes[0] : run.rows;
  RETURN_IF_FAILED(FindNewTokens(attention, inputs, key_rows, &run));
  RETURN_IF_FAILED(FindPast(attention, inputs, &run));
  std::unique_ptr<Segment[]> segments;
  RETURN_IF_FAILED(FindSegments(attention, inputs, &segments, &run));
  RETURN_IF_FAILED(FindRotary(attention, inputs, &run));
  RETURN_IF_FAILED(FindBias(attention, inputs, &run));

  const size_t number_bytes = kernel.is_half ? 2 : 4;
  run.cache.is_half = kernel.is_half;
  RETURN_IF_FAILED(Present(context, kPresentKey, inputs[kPastKey], number_bytes, &run.cache.keys));
  RETURN_IF_FAILED(Present(context, kPresentValue, inputs[kPastValue], number_bytes, &run.cache.values));
  RETURN_IF_FAILED(WriteOutput(attention, context, &run));
  if (run.rows > 0 && run.tokens > 0) FindKernels()->attend(attention, run, Workers(context));
  return nullptr;
}

template <ONNXTensorElementDataType Cached>
ONNXTensorElementDataType InputType(const OrtCustomOp*, size_t place) {
  if (place == kLastPositions || place == kTotalLength || place == kSlots) return ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32;
  return place == kPastKey || place == kPastValue ? Cached : ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT;
}

template <ONNXTensorElementDataType Cached>
ONNXTensorElementDataType OutputType(const OrtCustomOp*, size_t place) {
  return place == 0 ? ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT : Cached;
}

}  // namespace

OrtCustomOp AttentionOperator(bool is_half) {
  constexpr ONNXTensorElementDataType kFloat = ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT;
  constexpr ONNXTensorElementDataType kHalf = ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16;
  OrtCustomOp one = Operator();
  if (is_half) {
    one.GetName = [](const OrtCustomOp*) { return "HalfAttention"; };
    one.GetInputType = InputType<kHalf>;
    one.GetOutputType = OutputType<kHalf>;
    one.CreateKernelV2 = Create<true>;
  } else {
    one.GetName = [](const OrtCustomOp*) { return "Attention"; };
    one.GetInputType = InputType<kFloat>;
    one.GetOutputType = OutputType<kFloat>;
    one.CreateKernelV2 = Create<false>;
  }
  one.GetInputTypeCount = [](const OrtCustomOp*) -> size_t { return kInputs; };
  one.GetInputCharacteristic = [](const OrtCustomOp*, size_t place) {
    return place == kKey || place == kValue || place >= kCosines ? INPUT_OUTPUT_OPTIONAL : INPUT_OUTPUT_REQUIRED;
  };
  one.GetOutputTypeCount = [](const OrtCustomOp*) -> size_t { return kOutputs; };
  one.KernelComputeV2 = Compute;
  one.KernelDestroy = [](void* kernel) { delete static_cast<Kernel*>(kernel); };
  return one;
}

}  // namespace trifold
