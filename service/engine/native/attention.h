// Attention of new tokens to themselves and to those before them, which a cache keeps.

#pragma once

#include <cstddef>
#include <cstdint>

#include "threads.h"

namespace trifold {

constexpr int64_t kWidthUnit = 16;     // a head's width is a multiple of it,
constexpr int64_t kGreatestWidth = 256;  // and at most this

// What an operator's runs have in common: H query heads share K key and value heads, of D numbers each.
struct Attention {
  int64_t heads, kv_heads, width;
  int64_t window;  // how many tokens one sees, itself included; 0: all that it may
  float scale;     // of queries times keys
  bool is_causal;     // a token sees itself and those before it; else its row to both sides, without a cache alone
  bool is_to_source;  // keys and values are a source's, which the cache has whole; its last are handed in again
};

// New numbers of rows × tokens, each token's heads side by side, `stride` from one token to the next.
struct NewTokens {
  const float* data;
  int64_t stride;
};

// A table (positions, pairs) by which heads are turned (rotary embeddings: Su et al., "RoFormer", 2021): the number at
// d and that at d + pairs are a pair. Nothing is turned if `pairs` is 0.
struct Rotary {
  const float* cosines;
  const float* sines;
  int64_t pairs;
};

// What is added to scores; either `data` or `slopes` may be given. With `data`, in row b, head h and for new token t the
// numbers from data + b·row + h·head + t·token on, one for each token that it may see. With `slopes`, slopes[h] times the
// distance between the two tokens (ALiBi: Press et al., "Train Short, Test Long", 2022).
struct Bias {
  const float* data;
  int64_t row, head, token;
  const float* slopes;
};

// What keys and values are kept in: rows × K heads × capacity × D numbers of 32 or 16 bits.
struct Cache {
  void* keys;
  void* values;
  bool is_half;
};

// New tokens of one sequence: `tokens` of them, the first at `place` among all new tokens of a run, go behind the
// `before` that `slot` of the cache has already. Or, to a source, tokens that see it to its token `before`, each alone.
struct Segment {
  int64_t place, tokens, slot, before;
};

// One run: B rows of T new tokens each. Row b's last real token is at last[b]: what lies behind is padding, whose keys
// and values are kept and whose output is 0. Row b is that of slot b in the cache; or, with T = 1, rows are those of
// `segments`, which are told apart as several rows may be one sequence's. To a source nothing is handed in again then.
struct AttentionRun {
  NewTokens queries, keys, values;
  Cache cache;
  int64_t rows, tokens, capacity;
  int64_t before;  // how many tokens every row has in its cache already, if T is more than 1
  const int32_t* last;
  const Segment* segments;  // null: each row is one
  int64_t segment_count, longest_segment;
  Rotary rotary;
  Bias bias;
  float* output;  // (B, T, H·D)

  // How many tokens a row has in its cache already.
  int64_t Before(int64_t row) const { return tokens == 1 ? last[row] : before; }

  bool HasNewKeys(const Attention& attention) const { return segments == nullptr || !attention.is_to_source; }
  int64_t Segments() const { return segments == nullptr ? rows : segment_count; }
  int64_t LongestSegment() const { return segments == nullptr ? tokens : longest_segment; }
  Segment At(int64_t segment) const {
    if (segments != nullptr) return segments[segment];
    return {segment * tokens, tokens, segment, Before(segment)};
  }
};

}  // namespace trifold
