// What both ways of attending are made of: with a cache (`attention_kernel.h`) and without
// (`ragged_attention_kernel.h`).
//
// It is compiled for each kind of registers, whose header comes before it.
//
// Weights are made for a stretch of tokens at a time, and what was summed up so far is scaled when a greater score comes
// (Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018).

#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

#include "attention.h"

namespace trifold {
namespace {

constexpr float kGreatestHalf = 65504;
constexpr float kNothing = -std::numeric_limits<float>::infinity();  // the score of a token that is not seen

INLINE void Store(uint16_t* to, Floats numbers) {
  StoreHalves(to, Max(All(-kGreatestHalf), Min(All(kGreatestHalf), numbers)));
}

// e^x for x ≤ 0, by the polynomial of Moshier's Cephes library (expf).
INLINE Floats Exp(Floats x) {
  x = Max(All(-104.0f), x);  // below it is nothing; in this order what is no number stays none
  const Floats power = RoundToWhole(Multiply(x, All(1.44269504088896341f)));
  x = SubtractProduct(power, All(0.693359375f), x);
  x = SubtractProduct(power, All(-2.12194440e-4f), x);
  Floats sum = All(1.9875691500e-4f);
  for (float factor : {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f})
    sum = MultiplyAdd(sum, x, All(factor));
  sum = MultiplyAdd(sum, Multiply(x, x), Add(x, All(1)));
  return TimesPowerOfTwo(sum, power);
}

SIMD float Exp(float x) { return First(Exp(All(x))); }

// A token's attention in one head.
struct Query {
  int64_t begin, end;  // of the tokens that it sees
  const float* bias;   // of token 0, or null
  float* output;
  float greatest;      // score so far
  float slope;         // multiplied by a token's distance from `position`, and added to its score
  int64_t position;    // of its own token
};

alignas(64) constexpr float kPlaces[kLanes] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

// How far sixteen tokens, of which `token` is the first, are from the one at a position.
SIMD Floats DistancesFrom(int64_t position, int64_t token) {
  const Floats behind = Add(Load(kPlaces), All(static_cast<float>(token - position)));
  return Max(behind, Subtract(All(0), behind));
}

// Turns a head at a position.
SIMD void Turn(const Rotary& rotary, int64_t position, float* head) {
  const float* cosines = rotary.cosines + position * rotary.pairs;
  const float* sines = rotary.sines + position * rotary.pairs;
  for (int64_t d = 0; d < rotary.pairs; ++d) {
    const float first = head[d], second = head[d + rotary.pairs];
    head[d] = first * cosines[d] - second * sines[d];
    head[d + rotary.pairs] = second * cosines[d] + first * sines[d];
  }
}

// Makes weights of a query's scores of tokens begin … end−1, which lie from `scores` on in blocks of sixteen, `begin`
// being the first of one. What was summed up so far is scaled to the greatest score that there was: `sums` of values, of
// `width` numbers, and `lane_sums` of weights, sixteen.
SIMD void WeightsOf(int64_t begin, int64_t end, float* scores, int64_t width, float* sums, float* lane_sums,
                    Query* query) {
  const int64_t first = std::max(begin, query->begin), last = std::min(end, query->end);
  if (first >= last) {
    for (int64_t token = begin; token < end; token += kLanes) Store(scores + token - begin, All(0));
    return;
  }
  Floats greatest = All(query->greatest);
  for (int64_t token = begin; token < end; token += kLanes) {
    const Lanes lanes = LanesBetween(first - token, last - token);
    Floats score = Select(lanes, Load(scores + token - begin), All(kNothing));
    if (query->slope != 0) score = MultiplyAdd(All(query->slope), DistancesFrom(query->position, token), score);
    if (query->bias != nullptr) score = Add(score, Load(lanes, query->bias + token));
    Store(scores + token - begin, score);
    greatest = Max(greatest, score);
  }
  const float most = Greatest(greatest);
  const float base = most == kNothing ? 0 : most;
  if (query->greatest != most) {
    const float factor = query->greatest == kNothing ? 0 : Exp(query->greatest - base);
    for (int64_t d = 0; d < width; ++d) sums[d] *= factor;
    for (int64_t lane = 0; lane < kLanes; ++lane) lane_sums[lane] *= factor;
    query->greatest = most;
  }
  Floats all = Load(lane_sums);
  for (int64_t token = begin; token < end; token += kLanes) {
    const Floats score = Subtract(Load(scores + token - begin), All(base));
    const Floats weight = Select(LanesBetween(first - token, last - token), Exp(score), All(0));
    Store(scores + token - begin, weight);
    all = Add(all, weight);
  }
  Store(lane_sums, all);
}

// Adds to the sums of `Queries` queries, of `Parts` · 16 numbers each, the values of `count` tokens by their weights. Each
// stride is that from one token or query to the next.
template <typename Number, int Queries, int Parts>
SIMD void Weigh(const Number* values, int64_t value_stride, const float* weights, int64_t weight_stride, int64_t count,
                float* sums, int64_t sum_stride) {
  Floats held[Queries][Parts];
#pragma GCC unroll 4
  for (int query = 0; query < Queries; ++query)
#pragma GCC unroll 4
    for (int part = 0; part < Parts; ++part) held[query][part] = Load(sums + query * sum_stride + part * kLanes);
  for (int64_t token = 0; token < count; ++token, values += value_stride) {
    Floats value[Parts];
#pragma GCC unroll 4
    for (int part = 0; part < Parts; ++part) value[part] = Load(values + part * kLanes);
#pragma GCC unroll 4
    for (int query = 0; query < Queries; ++query) {
      const Floats weight = All(weights[query * weight_stride + token]);
#pragma GCC unroll 4
      for (int part = 0; part < Parts; ++part)
        held[query][part] = MultiplyAdd(weight, value[part], held[query][part]);
    }
  }
#pragma GCC unroll 4
  for (int query = 0; query < Queries; ++query)
#pragma GCC unroll 4
    for (int part = 0; part < Parts; ++part) Store(sums + query * sum_stride + part * kLanes, held[query][part]);
}

template <typename Number>
using AnyWeigh = void (*)(const Number*, int64_t, const float*, int64_t, int64_t, float*, int64_t);

// Returns `Weigh` for so many queries and parts: those of place `Places` are so many queries, and parts from 1 on.
template <typename Number, int... Places>
AnyWeigh<Number> WeighOf(std::integer_sequence<int, Places...>, int64_t queries, int64_t parts) {
  static constexpr AnyWeigh<Number> kFunctions[] = {Weigh<Number, Places / kMostParts + 1, Places % kMostParts + 1>...};
  return kFunctions[(queries - 1) * kMostParts + parts - 1];
}

// Adds values of `width` numbers, as `Weigh` does, to the sums of up to `kMostQueries` queries.
template <typename Number>
SIMD void WeighAll(const Number* values, int64_t width, const float* weights, int64_t weight_stride, int64_t count,
                   float* sums, int64_t sum_stride, int64_t queries) {
  for (int64_t d = 0; d < width; d += kMostParts * kLanes) {
    const int64_t parts = std::min<int64_t>(kMostParts, (width - d) / kLanes);
    const auto weigh = WeighOf<Number>(std::make_integer_sequence<int, kMostQueries * kMostParts>(), queries, parts);
    weigh(values + d, width, weights, weight_stride, count, sums + d, sum_stride);
  }
}

// Products of a query's and a key's numbers that a thread takes at a time: so many at least and at most, and between
// them a part of all that leaves no thread waiting for long at the end. Fewer in all are done before others are woken.
constexpr int64_t kLeastTask = 8 * 1024, kMostTask = 64 * 1024, kTasks = 16, kTooSmall = 32 * 1024;

// How many units of work, of so many products each, a thread takes at a time.
inline int64_t UnitsATask(int64_t units, int64_t products) {
  if (units * products < kTooSmall) return units;
  return std::max<int64_t>(1, std::clamp(units / kTasks * products, kLeastTask, kMostTask) / products);
}

}  // namespace
}  // namespace trifold
