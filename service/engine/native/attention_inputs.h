// What both operators of attention are given, and how it is read.
//
// Inputs, as GroupQueryAttention of ONNX Runtime has them: query (B, T, H·D), key and value (B, T, K·D), or all three in
// query, (B, T, (H + 2K)·D); past_key and past_value (B, K, S, D); last_positions (B) and total_length () int32; where
// heads are turned cosines and sines (positions, pairs); maybe a bias that broadcasts to (B, H, T, total_length), or slopes
// (H, 1, 1) by which scores change with the distance of tokens; and maybe slots (B) int32. The first output is (B, T, H·D).

#pragma once

#include "attention.h"
#include "operators.h"

namespace trifold {

enum Input : size_t {
  kQuery,
  kKey,
  kValue,
  kPastKey,
  kPastValue,
  kLastPositions,
  kTotalLength,
  kCosines,
  kSines,
  kBias,
  kSlots,
  kInputs
};

struct Tensor {
  bool is_given = false;
  const void* data = nullptr;  // null, too, of no numbers
  Shape shape{};
};

// Reads the attributes of both.
OrtStatus* ReadHeads(const OrtKernelInfo* info, Attention* attention);

// Reads what is given of the inputs, and how many rows of how many tokens there are.
OrtStatus* ReadInputs(const OrtKernelContext* context, Tensor* inputs, AttentionRun* run);

// Find queries, keys and values, of which `key_rows` have some; where rows end; the tables of turns; and the bias.
OrtStatus* FindNewTokens(const Attention& attention, const Tensor* inputs, int64_t key_rows, AttentionRun* run);
OrtStatus* FindLast(const Tensor* inputs, AttentionRun* run);
OrtStatus* FindRotary(const Attention& attention, const Tensor* inputs, AttentionRun* run);
OrtStatus* FindBias(const Attention& attention, const Tensor* inputs, AttentionRun* run);

// Takes the memory of the first output.
OrtStatus* WriteOutput(const Attention& attention, OrtKernelContext* context, AttentionRun* run);

}  // namespace trifold
