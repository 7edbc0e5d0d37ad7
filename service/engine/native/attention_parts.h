// What both ways of attending are made of: with a cache (`attention.cpp`) and without (`ragged_attention.cpp`).
//
// Weights are made for a stretch of tokens at a time, and what was summed up so far is scaled when a greater score comes
// (Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018).

#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cstdint>
#include <limits>

#include "attention.h"

#define AVX512 __attribute__((target("avx512f,avx512bw,avx512vl")))
#define INLINE AVX512 inline __attribute__((always_inline))

namespace trifold {
namespace {

constexpr int64_t kLanes = 16;  // 32-bit numbers in a register, and tokens of a block
constexpr float kGreatestHalf = 65504;
constexpr float kNothing = -std::numeric_limits<float>::infinity();  // the score of a token that is not seen

INLINE __m512 Load(const float* numbers) { return _mm512_loadu_ps(numbers); }
INLINE __m512 Load(const uint16_t* numbers) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(numbers)));
}

INLINE void Store(float* to, __m512 numbers) { _mm512_storeu_ps(to, numbers); }
INLINE void Store(uint16_t* to, __m512 numbers) {
  const __m512 most = _mm512_set1_ps(kGreatestHalf), least = _mm512_set1_ps(-kGreatestHalf);
  const __m512 bounded = _mm512_max_ps(least, _mm512_min_ps(most, numbers));
  constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtps_ph(bounded, kNearest));
}

// e^x for x ≤ 0, by the polynomial of Moshier's Cephes library (expf).
INLINE __m512 Exp(__m512 x) {
  x = _mm512_max_ps(_mm512_set1_ps(-104.0f), x);  // below it is nothing; in this order what is no number stays none
  const __m512 power = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504088896341f)), 0);
  x = _mm512_fnmadd_ps(power, _mm512_set1_ps(0.693359375f), x);
  x = _mm512_fnmadd_ps(power, _mm512_set1_ps(-2.12194440e-4f), x);
  __m512 sum = _mm512_set1_ps(1.9875691500e-4f);
  for (float factor : {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f})
    sum = _mm512_fmadd_ps(sum, x, _mm512_set1_ps(factor));
  sum = _mm512_fmadd_ps(sum, _mm512_mul_ps(x, x), _mm512_add_ps(x, _mm512_set1_ps(1)));
  return _mm512_scalef_ps(sum, power);
}

AVX512 float Exp(float x) { return _mm512_cvtss_f32(Exp(_mm512_set1_ps(x))); }

// The lanes of a block whose tokens lie within begin … end−1.
INLINE __mmask16 Lanes(int64_t token, int64_t begin, int64_t end) {
  const int64_t first = std::max<int64_t>(0, begin - token), last = std::min<int64_t>(kLanes, end - token);
  return first >= last ? 0 : ((1u << last) - 1) & ~((1u << first) - 1);
}

// A token's attention in one head.
struct Query {
  int64_t begin, end;  // of the tokens that it sees
  const float* bias;   // of token 0, or null
  float* output;
  float greatest;      // score so far
};

// Turns a head at a position.
AVX512 void Turn(const Rotary& rotary, int64_t position, float* head) {
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
AVX512 void WeightsOf(int64_t begin, int64_t end, float* scores, int64_t width, float* sums, float* lane_sums,
                      Query* query) {
  const int64_t first = std::max(begin, query->begin), last = std::min(end, query->end);
  if (first >= last) {
    for (int64_t token = begin; token < end; token += kLanes) Store(scores + token - begin, _mm512_setzero_ps());
    return;
  }
  __m512 greatest = _mm512_set1_ps(query->greatest);
  for (int64_t token = begin; token < end; token += kLanes) {
    const __mmask16 lanes = Lanes(token, first, last);
    __m512 score = _mm512_mask_mov_ps(_mm512_set1_ps(kNothing), lanes, Load(scores + token - begin));
    if (query->bias != nullptr) score = _mm512_add_ps(score, _mm512_maskz_loadu_ps(lanes, query->bias + token));
    Store(scores + token - begin, score);
    greatest = _mm512_max_ps(greatest, score);
  }
  const float most = _mm512_reduce_max_ps(greatest);
  const float base = most == kNothing ? 0 : most;
  if (query->greatest != most) {
    const float factor = query->greatest == kNothing ? 0 : Exp(query->greatest - base);
    for (int64_t d = 0; d < width; ++d) sums[d] *= factor;
    for (int64_t lane = 0; lane < kLanes; ++lane) lane_sums[lane] *= factor;
    query->greatest = most;
  }
  __m512 all = Load(lane_sums);
  for (int64_t token = begin; token < end; token += kLanes) {
    const __m512 score = _mm512_sub_ps(Load(scores + token - begin), _mm512_set1_ps(base));
    const __m512 weight = _mm512_maskz_mov_ps(Lanes(token, first, last), Exp(score));
    Store(scores + token - begin, weight);
    all = _mm512_add_ps(all, weight);
  }
  Store(lane_sums, all);
}

// Adds to the sums of `Queries` queries, of `Parts` · 16 numbers each, the values of `count` tokens by their weights. Each
// stride is that from one token or query to the next.
template <typename Number, int Queries, int Parts>
AVX512 void Weigh(const Number* values, int64_t value_stride, const float* weights, int64_t weight_stride, int64_t count,
                  float* sums, int64_t sum_stride) {
  __m512 held[Queries][Parts];
#pragma GCC unroll 4
  for (int query = 0; query < Queries; ++query)
#pragma GCC unroll 4
    for (int part = 0; part < Parts; ++part) held[query][part] = Load(sums + query * sum_stride + part * kLanes);
  for (int64_t token = 0; token < count; ++token, values += value_stride) {
    __m512 value[Parts];
#pragma GCC unroll 4
    for (int part = 0; part < Parts; ++part) value[part] = Load(values + part * kLanes);
#pragma GCC unroll 4
    for (int query = 0; query < Queries; ++query) {
      const __m512 weight = _mm512_set1_ps(weights[query * weight_stride + token]);
#pragma GCC unroll 4
      for (int part = 0; part < Parts; ++part)
        held[query][part] = _mm512_fmadd_ps(weight, value[part], held[query][part]);
    }
  }
#pragma GCC unroll 4
  for (int query = 0; query < Queries; ++query)
#pragma GCC unroll 4
    for (int part = 0; part < Parts; ++part) Store(sums + query * sum_stride + part * kLanes, held[query][part]);
}

constexpr int kMostQueries = 4, kMostParts = 4;  // whose sums fill half of the registers

template <typename Number>
using AnyWeigh = void (*)(const Number*, int64_t, const float*, int64_t, int64_t, float*, int64_t);
template <typename Number>
constexpr AnyWeigh<Number> kWeigh[kMostQueries][kMostParts] = {
    {Weigh<Number, 1, 1>, Weigh<Number, 1, 2>, Weigh<Number, 1, 3>, Weigh<Number, 1, 4>},
    {Weigh<Number, 2, 1>, Weigh<Number, 2, 2>, Weigh<Number, 2, 3>, Weigh<Number, 2, 4>},
    {Weigh<Number, 3, 1>, Weigh<Number, 3, 2>, Weigh<Number, 3, 3>, Weigh<Number, 3, 4>},
    {Weigh<Number, 4, 1>, Weigh<Number, 4, 2>, Weigh<Number, 4, 3>, Weigh<Number, 4, 4>}};

// Adds values of `width` numbers, as `Weigh` does, to the sums of up to `kMostQueries` queries.
template <typename Number>
AVX512 void WeighAll(const Number* values, int64_t width, const float* weights, int64_t weight_stride, int64_t count,
                     float* sums, int64_t sum_stride, int64_t queries) {
  for (int64_t d = 0; d < width; d += kMostParts * kLanes) {
    const int64_t parts = std::min<int64_t>(kMostParts, (width - d) / kLanes);
    kWeigh<Number>[queries - 1][parts - 1](values + d, width, weights, weight_stride, count, sums + d, sum_stride);
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
