// Sixteen numbers in one register of AVX-512.

#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "linear.h"

#define SIMD __attribute__((target("avx512f,avx512bw,avx512vl,avx512vnni")))
#define INLINE SIMD inline __attribute__((always_inline))

namespace trifold {
namespace {

constexpr int64_t kLanes = 16;
constexpr int64_t kRegisterRows = 12;             // of a product at a time: their sums fill 24 of 32 registers
constexpr int kMostQueries = 4, kMostParts = 4;   // of attention at a time: their sums fill 16
constexpr int kScoredTokens = 16;                 // whose scores are summed up at a time

using Floats = __m512;
using Integers = __m512i;
using Lanes = __mmask16;

INLINE Floats All(float number) { return _mm512_set1_ps(number); }
INLINE Floats Add(Floats a, Floats b) { return _mm512_add_ps(a, b); }
INLINE Floats Subtract(Floats a, Floats b) { return _mm512_sub_ps(a, b); }
INLINE Floats Multiply(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
INLINE Floats Divide(Floats a, Floats b) { return _mm512_div_ps(a, b); }
INLINE Floats MultiplyAdd(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }       // a · b + c
INLINE Floats SubtractProduct(Floats a, Floats b, Floats c) { return _mm512_fnmadd_ps(a, b, c); }  // c − a · b
INLINE Floats Max(Floats a, Floats b) { return _mm512_max_ps(a, b); }  // b, where either is no number
INLINE Floats Min(Floats a, Floats b) { return _mm512_min_ps(a, b); }  // the same
INLINE Floats Absolute(Floats a) { return _mm512_abs_ps(a); }
INLINE Floats RoundToWhole(Floats a) { return _mm512_roundscale_ps(a, 0); }
INLINE Floats TimesPowerOfTwo(Floats a, Floats power) { return _mm512_scalef_ps(a, power); }
INLINE float First(Floats a) { return _mm512_cvtss_f32(a); }
INLINE float Sum(Floats a) { return _mm512_reduce_add_ps(a); }  // of halves, of their halves, and so on
INLINE float Greatest(Floats a) { return _mm512_reduce_max_ps(a); }

// Lanes first … last−1, of which some may be outside of the register.
INLINE Lanes LanesBetween(int64_t first, int64_t last) {
  first = std::max<int64_t>(0, first), last = std::min<int64_t>(kLanes, last);
  return first >= last ? 0 : ((1u << last) - 1) & ~((1u << first) - 1);
}
INLINE Floats Select(Lanes lanes, Floats inside, Floats outside) {
  return _mm512_mask_mov_ps(outside, lanes, inside);
}

INLINE Floats Load(const float* numbers) { return _mm512_loadu_ps(numbers); }
INLINE Floats Load(const uint16_t* halves) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(halves)));
}
INLINE Floats Load(Lanes lanes, const float* numbers) { return _mm512_maskz_loadu_ps(lanes, numbers); }  // else 0

INLINE void Store(float* to, Floats numbers) { _mm512_storeu_ps(to, numbers); }
INLINE void StoreHalves(uint16_t* to, Floats numbers) {
  constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_cvtps_ph(numbers, kNearest));
}
INLINE void Store(Lanes lanes, float* to, Floats numbers) {
  if (lanes == 0xffff) {
    _mm512_storeu_ps(to, numbers);
  } else {
    _mm512_mask_storeu_ps(to, lanes, numbers);
  }
}

// Of two registers one with the sums of each one's halves (of 8, 4, 2, 1 numbers), the first's before the second's.
template <int Low, int High>
INLINE Floats FoldQuarters(Floats first, Floats second) {
  return Add(_mm512_shuffle_f32x4(first, second, Low), _mm512_shuffle_f32x4(first, second, High));
}
template <int Low, int High>
INLINE Floats FoldNumbers(Floats first, Floats second) {
  return Add(_mm512_shuffle_ps(first, second, Low), _mm512_shuffle_ps(first, second, High));
}

// Writes the `Sum` of each of `kScoredTokens` registers.
INLINE void StoreSums(float* to, Floats* registers) {
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) registers[i] = FoldQuarters<0x44, 0xee>(registers[i], registers[i + 8]);
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) registers[i] = FoldQuarters<0x88, 0xdd>(registers[i], registers[i + 4]);
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) registers[i] = FoldNumbers<0x44, 0xee>(registers[i], registers[i + 2]);
  const Floats folded = FoldNumbers<0x88, 0xdd>(registers[0], registers[1]);
  // The folds have left register t's sum where this says it is.
  const __m512i places = _mm512_setr_epi32(0, 2, 1, 3, 8, 10, 9, 11, 4, 6, 5, 7, 12, 14, 13, 15);
  Store(to, _mm512_permutexvar_ps(places, folded));
}

// Turns sixteen registers over: register i becomes what was in lane i of each.
INLINE void TurnOver(Floats* rows) {
  Floats turned[kLanes];
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    const Floats first = _mm512_unpacklo_ps(rows[i], rows[i + 1]), second = _mm512_unpackhi_ps(rows[i], rows[i + 1]);
    const Floats third = _mm512_unpacklo_ps(rows[i + 2], rows[i + 3]);
    const Floats fourth = _mm512_unpackhi_ps(rows[i + 2], rows[i + 3]);
    turned[i] = _mm512_shuffle_ps(first, third, 0x44);
    turned[i + 1] = _mm512_shuffle_ps(first, third, 0xee);
    turned[i + 2] = _mm512_shuffle_ps(second, fourth, 0x44);
    turned[i + 3] = _mm512_shuffle_ps(second, fourth, 0xee);
  }
  // Quarter q of turned[4·i + j] is now column 4·q + j of rows 4·i … 4·i + 3.
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const Floats low = _mm512_shuffle_f32x4(turned[j], turned[4 + j], 0x44);
    const Floats high = _mm512_shuffle_f32x4(turned[j], turned[4 + j], 0xee);
    const Floats other_low = _mm512_shuffle_f32x4(turned[8 + j], turned[12 + j], 0x44);
    const Floats other_high = _mm512_shuffle_f32x4(turned[8 + j], turned[12 + j], 0xee);
    rows[j] = _mm512_shuffle_f32x4(low, other_low, 0x88);
    rows[4 + j] = _mm512_shuffle_f32x4(low, other_low, 0xdd);
    rows[8 + j] = _mm512_shuffle_f32x4(high, other_high, 0x88);
    rows[12 + j] = _mm512_shuffle_f32x4(high, other_high, 0xdd);
  }
}

// How a product keeps the numbers of its rows: as they are.
using Rounded = uint8_t;
constexpr int32_t kRoundedZero = 0;

INLINE Integers AllIntegers(int32_t number) { return _mm512_set1_epi32(number); }
INLINE Integers AddIntegers(Integers a, Integers b) { return _mm512_add_epi32(a, b); }
INLINE Integers MultiplyIntegers(Integers a, Integers b) { return _mm512_mullo_epi32(a, b); }
INLINE Integers LoadIntegers(const int32_t* numbers) { return _mm512_loadu_si512(numbers); }
INLINE void StoreIntegers(int32_t* to, Integers numbers) { _mm512_storeu_si512(to, numbers); }
INLINE Integers ToIntegers(Floats numbers) { return _mm512_cvtps_epi32(numbers); }
INLINE Floats ToFloats(Integers numbers) { return _mm512_cvtepi32_ps(numbers); }
INLINE void StoreRounded(Rounded* to, Integers numbers) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm512_cvtepi32_epi8(numbers));
}

// Adds the products of four unsigned with four signed bytes to each sum. The intrinsic of the same name makes GCC 12
// copy every sum once an instruction, which halves the speed.
INLINE Integers AddProducts(Integers sums, Integers rows, Integers weights) {
  __asm__("vpdpbusd %2, %1, %0" : "+v"(sums) : "v"(rows), "v"(weights));
  return sums;
}

INLINE Integers Broadcast(const Rounded* four) {
  int32_t value;
  std::memcpy(&value, four, sizeof value);
  return _mm512_set1_epi32(value);
}

// Adds to the sums of `Rows` rows and of a panel's columns their products, and asks for what lies `ahead` of the weights.
template <int Rows>
INLINE void SumUp(const Rounded* rows, int64_t stride, const int8_t* weights, int64_t groups, int64_t ahead,
                  int32_t (*totals)[kPanelColumns]) {
  Integers sums[Rows][2];
#pragma GCC unroll 12
  for (int i = 0; i < Rows; ++i)
    for (int half = 0; half < 2; ++half) sums[i][half] = LoadIntegers(totals[i] + half * kLanes);
  int64_t group = 0;
  if constexpr (Rows == 1) {  // an instruction waits for the one before it on the same sum: two more sums fill the time
    Integers others[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()};
    for (; group + 2 <= groups; group += 2, weights += 2 * kPanelStride) {
      for (int line = 0; line < 2 * kPanelStride; line += 64) __builtin_prefetch(weights + ahead + line);
      const Integers first = Broadcast(rows + group * kGroup), second = Broadcast(rows + (group + 1) * kGroup);
      for (int half = 0; half < 2; ++half) {
        sums[0][half] = AddProducts(sums[0][half], first, _mm512_loadu_si512(weights + half * 64));
        others[half] = AddProducts(others[half], second, _mm512_loadu_si512(weights + kPanelStride + half * 64));
      }
    }
    for (int half = 0; half < 2; ++half) sums[0][half] = AddIntegers(sums[0][half], others[half]);
  }
  for (; group < groups; ++group, weights += kPanelStride) {
    __builtin_prefetch(weights + ahead);
    __builtin_prefetch(weights + ahead + 64);
    const Integers first = _mm512_loadu_si512(weights), second = _mm512_loadu_si512(weights + 64);
#pragma GCC unroll 12
    for (int i = 0; i < Rows; ++i) {
      const Integers four = Broadcast(rows + i * stride + group * kGroup);
      sums[i][0] = AddProducts(sums[i][0], four, first);
      sums[i][1] = AddProducts(sums[i][1], four, second);
    }
  }
#pragma GCC unroll 12
  for (int i = 0; i < Rows; ++i)
    for (int half = 0; half < 2; ++half) StoreIntegers(totals[i] + half * kLanes, sums[i][half]);
}

}  // namespace
}  // namespace trifold
