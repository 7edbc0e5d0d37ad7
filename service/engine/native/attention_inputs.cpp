#include "attention_inputs.h"

#include <cstring>

namespace trifold {
namespace {

constexpr int64_t kMostHeads = 65536;  // with more the sizes that follow from them could overflow

bool Has(const Tensor& tensor, int64_t rows, int64_t tokens, int64_t numbers) {
  const Shape& shape = tensor.shape;
  return shape.rank == 3 && shape.sizes[0] == rows && shape.sizes[1] == tokens && shape.sizes[2] == numbers;
}

}  // namespace

OrtStatus* ReadHeads(const OrtKernelInfo* info, Attention* attention) {
  RETURN_IF_FAILED(api->KernelInfoGetAttribute_int64(info, "heads", &attention->heads));
  RETURN_IF_FAILED(api->KernelInfoGetAttribute_int64(info, "kv_heads", &attention->kv_heads));
  RETURN_IF_FAILED(api->KernelInfoGetAttribute_int64(info, "window", &attention->window));
  RETURN_IF_FAILED(api->KernelInfoGetAttribute_float(info, "scale", &attention->scale));
  if (attention->heads > kMostHeads || attention->kv_heads > kMostHeads)
    return Invalid("trifold.Attention: more heads than any model has");
  if (attention->kv_heads < 1 || attention->heads < 1 || attention->heads % attention->kv_heads != 0)
    return Invalid("trifold.Attention: as many query heads must share each key head");
  return nullptr;
}

OrtStatus* ReadInputs(const OrtKernelContext* context, Tensor* inputs, AttentionRun* run) {
  size_t count;
  RETURN_IF_FAILED(api->KernelContext_GetInputCount(context, &count));
  for (size_t place = 0; place < count && place < kInputs; ++place) {
    const OrtValue* value = nullptr;
    RETURN_IF_FAILED(api->KernelContext_GetInput(context, place, &value));
    inputs[place].is_given = value != nullptr;
    if (value != nullptr) RETURN_IF_FAILED(Read(value, &inputs[place].shape, &inputs[place].data));
  }
  if (inputs[kQuery].shape.rank != 3) return Invalid("trifold.Attention: query has three dimensions");
  run->rows = inputs[kQuery].shape.sizes[0];
  run->tokens = inputs[kQuery].shape.sizes[1];
  return nullptr;
}

OrtStatus* FindNewTokens(const Attention& attention, const Tensor* inputs, int64_t key_rows, AttentionRun* run) {
  const int64_t queries = attention.heads * attention.width, keys = attention.kv_heads * attention.width;
  const float* query = static_cast<const float*>(inputs[kQuery].data);
  if (!inputs[kKey].is_given) {
    const int64_t all = queries + 2 * keys;
    if (!Has(inputs[kQuery], run->rows, run->tokens, all)) return Invalid("trifold.Attention: query has another shape");
    run->queries = {query, all};
    run->keys = {query + queries, all};
    run->values = {query + queries + keys, all};
    return nullptr;
  }
  if (!Has(inputs[kQuery], run->rows, run->tokens, queries) || !Has(inputs[kKey], key_rows, run->tokens, keys) ||
      !inputs[kValue].is_given || !Has(inputs[kValue], key_rows, run->tokens, keys))
    return Invalid("trifold.Attention: query, key or value has another shape");
  run->queries = {query, queries};
  run->keys = {static_cast<const float*>(inputs[kKey].data), keys};
  run->values = {static_cast<const float*>(inputs[kValue].data), keys};
  return nullptr;
}

OrtStatus* FindLast(const Tensor* inputs, AttentionRun* run) {
  if (inputs[kLastPositions].shape.rank != 1 || inputs[kLastPositions].shape.sizes[0] != run->rows)
    return Invalid("trifold.Attention: there is one last position a row");
  run->last = static_cast<const int32_t*>(inputs[kLastPositions].data);
  return nullptr;
}

OrtStatus* FindRotary(const Attention& attention, const Tensor* inputs, AttentionRun* run) {
  if (!inputs[kCosines].is_given || !inputs[kSines].is_given) return nullptr;
  const Shape& shape = inputs[kCosines].shape;
  if (shape.rank != 2 || 2 * shape.sizes[1] > attention.width || inputs[kSines].shape.rank != 2 ||
      std::memcmp(shape.sizes, inputs[kSines].shape.sizes, 2 * sizeof shape.sizes[0]) != 0)
    return Invalid("trifold.Attention: the tables of turns have another shape");
  for (int64_t row = 0; row < run->rows; ++row)
    if (run->Before(row) + run->tokens > shape.sizes[0])
      return Invalid("trifold.Attention: a position is not in the tables of turns");
  run->rotary = {static_cast<const float*>(inputs[kCosines].data), static_cast<const float*>(inputs[kSines].data),
                 shape.sizes[1]};
  return nullptr;
}

OrtStatus* FindBias(const Attention& attention, const Tensor* inputs, AttentionRun* run) {
  if (!inputs[kBias].is_given) return nullptr;
  const Shape& shape = inputs[kBias].shape;
  if (shape.rank == 3) {
    if (shape.sizes[0] != attention.heads || shape.sizes[1] != 1 || shape.sizes[2] != 1)
      return Invalid("trifold.Attention: there is one slope a head");
    run->bias.slopes = static_cast<const float*>(inputs[kBias].data);
    return nullptr;
  }
  const int64_t wanted[] = {run->rows, attention.heads, run->tokens};
  int64_t strides[3], stride = shape.rank == 4 ? shape.sizes[3] : 0;
  for (int64_t row = 0; row < run->rows; ++row)
    if (run->Before(row) + run->tokens > stride) return Invalid("trifold.Attention: the bias is too short");
  for (int dimension = 2; dimension >= 0; --dimension) {
    const int64_t size = shape.sizes[dimension];
    if (size != 1 && size != wanted[dimension]) return Invalid("trifold.Attention: the bias has another shape");
    strides[dimension] = size == 1 ? 0 : stride;
    stride *= size;
  }
  run->bias = {static_cast<const float*>(inputs[kBias].data), strides[0], strides[1], strides[2], nullptr};
  return nullptr;
}

OrtStatus* WriteOutput(const Attention& attention, OrtKernelContext* context, AttentionRun* run) {
  void* output;
  RETURN_IF_FAILED(
      Write(context, 0, {{run->rows, run->tokens, attention.heads * attention.width}, 3}, &output));
  run->output = static_cast<float*>(output);
  return nullptr;
}

}  // namespace trifold
