// Sixteen numbers in four registers of NEON, for 64-bit Arm whose instructions multiply 8-bit integers: rows with columns
// (dot products: Graviton 2, Ampere's Altra), or two rows with two columns (`TRIFOLD_MATRIX_PRODUCTS`, which a source
// defines before it includes this: Graviton 3, Axion, Cobalt).

#pragma once

#include <arm_neon.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "linear.h"

#ifdef TRIFOLD_MATRIX_PRODUCTS
#define INSTRUCTIONS "dotprod+i8mm"
#else
#define INSTRUCTIONS "dotprod"
#endif
#define SIMD __attribute__((target("arch=armv8.2-a+" INSTRUCTIONS)))
#define INLINE SIMD inline __attribute__((always_inline))

namespace trifold {
namespace {

constexpr int64_t kLanes = 16;
constexpr int64_t kRegisterRows = 6;             // of a product at a time: their sums fill 24 of 32 registers
constexpr int kMostQueries = 2, kMostParts = 2;  // of attention at a time: their sums fill 16
constexpr int kScoredTokens = 4;                 // whose scores are summed up at a time
constexpr int kQuarters = 4;

struct Floats {
  float32x4_t quarters[kQuarters];
};
struct Integers {
  int32x4_t quarters[kQuarters];
};
struct Lanes {  // all bits of a lane are set, or none
  uint32x4_t quarters[kQuarters];
  int first, last;
};

// Does the same with each quarter.
#define EACH_QUARTER(Result, expression)                                          \
  Result result;                                                                  \
  _Pragma("GCC unroll 4") for (int q = 0; q < kQuarters; ++q) result.quarters[q] = expression; \
  return result

INLINE Floats All(float number) { EACH_QUARTER(Floats, vdupq_n_f32(number)); }
INLINE Floats Add(Floats a, Floats b) { EACH_QUARTER(Floats, vaddq_f32(a.quarters[q], b.quarters[q])); }
INLINE Floats Subtract(Floats a, Floats b) { EACH_QUARTER(Floats, vsubq_f32(a.quarters[q], b.quarters[q])); }
INLINE Floats Multiply(Floats a, Floats b) { EACH_QUARTER(Floats, vmulq_f32(a.quarters[q], b.quarters[q])); }
INLINE Floats Divide(Floats a, Floats b) { EACH_QUARTER(Floats, vdivq_f32(a.quarters[q], b.quarters[q])); }
INLINE Floats MultiplyAdd(Floats a, Floats b, Floats c) {  // a · b + c
  EACH_QUARTER(Floats, vfmaq_f32(c.quarters[q], a.quarters[q], b.quarters[q]));
}
INLINE Floats SubtractProduct(Floats a, Floats b, Floats c) {  // c − a · b
  EACH_QUARTER(Floats, vfmsq_f32(c.quarters[q], a.quarters[q], b.quarters[q]));
}
INLINE float32x4_t Max(float32x4_t a, float32x4_t b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
INLINE Floats Max(Floats a, Floats b) {  // b, where either is no number
  EACH_QUARTER(Floats, Max(a.quarters[q], b.quarters[q]));
}
INLINE Floats Min(Floats a, Floats b) {  // the same
  EACH_QUARTER(Floats, vbslq_f32(vcltq_f32(a.quarters[q], b.quarters[q]), a.quarters[q], b.quarters[q]));
}
INLINE Floats Absolute(Floats a) { EACH_QUARTER(Floats, vabsq_f32(a.quarters[q])); }
INLINE Floats RoundToWhole(Floats a) { EACH_QUARTER(Floats, vrndnq_f32(a.quarters[q])); }

// For whole powers from −190 to 63, and numbers near 1: these stay exact with 2^−64, so that only one product is rounded.
INLINE float32x4_t TimesPowerOfTwo(float32x4_t a, float32x4_t power) {
  constexpr int kBias = 127, kFractionBits = 23, kFirst = -64;
  const int32x4_t rest = vaddq_s32(vcvtnq_s32_f32(power), vdupq_n_s32(kBias - kFirst));
  return vmulq_f32(vmulq_n_f32(a, 0x1p-64f), vreinterpretq_f32_s32(vshlq_n_s32(rest, kFractionBits)));
}
INLINE Floats TimesPowerOfTwo(Floats a, Floats power) {
  EACH_QUARTER(Floats, TimesPowerOfTwo(a.quarters[q], power.quarters[q]));
}

// The sums of a register's halves, of eight numbers and then of four.
INLINE float32x4_t FoldEight(const Floats& a) {
  return vaddq_f32(vaddq_f32(a.quarters[0], a.quarters[2]), vaddq_f32(a.quarters[1], a.quarters[3]));
}
INLINE float First(Floats a) { return vgetq_lane_f32(a.quarters[0], 0); }
INLINE float Sum(Floats a) {  // of halves, of their halves, and so on
  const float32x4_t four = FoldEight(a);
  return vpadds_f32(vadd_f32(vget_low_f32(four), vget_high_f32(four)));
}
INLINE float Greatest(Floats a) {
  const float32x4_t four = Max(Max(a.quarters[0], a.quarters[2]), Max(a.quarters[1], a.quarters[3]));
  const float32x4_t two = Max(four, vextq_f32(four, four, 2));
  return vgetq_lane_f32(Max(two, vextq_f32(two, two, 1)), 0);
}

// Lanes first … last−1, of which some may be outside of the registers.
INLINE Lanes LanesBetween(int64_t first, int64_t last) {
  Lanes lanes;
  lanes.first = static_cast<int>(std::max<int64_t>(0, first));
  lanes.last = static_cast<int>(std::min<int64_t>(kLanes, last));
  const int32x4_t begin = vdupq_n_s32(lanes.first), end = vdupq_n_s32(lanes.last);
  int32x4_t numbers = {0, 1, 2, 3};
#pragma GCC unroll 4
  for (int q = 0; q < kQuarters; ++q, numbers = vaddq_s32(numbers, vdupq_n_s32(4)))
    lanes.quarters[q] = vandq_u32(vcgeq_s32(numbers, begin), vcltq_s32(numbers, end));
  return lanes;
}
INLINE Floats Select(const Lanes& lanes, Floats inside, Floats outside) {
  EACH_QUARTER(Floats, vbslq_f32(lanes.quarters[q], inside.quarters[q], outside.quarters[q]));
}

INLINE Floats Load(const float* numbers) { EACH_QUARTER(Floats, vld1q_f32(numbers + 4 * q)); }
INLINE Floats Load(const uint16_t* halves) {
  EACH_QUARTER(Floats, vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(halves + 4 * q))));
}
INLINE Floats Load(const Lanes& lanes, const float* numbers) {  // else 0
  if (lanes.first == 0 && lanes.last == kLanes) return Load(numbers);
  float held[kLanes] = {};
  for (int lane = lanes.first; lane < lanes.last; ++lane) held[lane] = numbers[lane];
  return Load(held);
}

INLINE void Store(float* to, Floats numbers) {
#pragma GCC unroll 4
  for (int q = 0; q < kQuarters; ++q) vst1q_f32(to + 4 * q, numbers.quarters[q]);
}
INLINE void StoreHalves(uint16_t* to, Floats numbers) {
#pragma GCC unroll 4
  for (int q = 0; q < kQuarters; ++q) vst1_u16(to + 4 * q, vreinterpret_u16_f16(vcvt_f16_f32(numbers.quarters[q])));
}
INLINE void Store(const Lanes& lanes, float* to, Floats numbers) {
  if (lanes.first == 0 && lanes.last == kLanes) return Store(to, numbers);
  float held[kLanes];
  Store(held, numbers);
  for (int lane = lanes.first; lane < lanes.last; ++lane) to[lane] = held[lane];
}

// Of two registers one with the sums of each one's halves, the first's before the second's.
INLINE float32x4_t FoldFour(float32x4_t first, float32x4_t second) {
  const float32x4_t low = vcombine_f32(vget_low_f32(first), vget_low_f32(second));
  return vaddq_f32(low, vcombine_f32(vget_high_f32(first), vget_high_f32(second)));
}

// Writes the `Sum` of each of `kScoredTokens` registers.
INLINE void StoreSums(float* to, Floats* registers) {
  const float32x4_t first = FoldFour(FoldEight(registers[0]), FoldEight(registers[1]));
  const float32x4_t second = FoldFour(FoldEight(registers[2]), FoldEight(registers[3]));
  vst1q_f32(to, vpaddq_f32(first, second));
}

// Turns sixteen registers over: register i becomes what was in lane i of each.
INLINE void TurnOver(Floats* rows) {
  Floats turned[kLanes];
  for (int i = 0; i < kQuarters; ++i)
    for (int q = 0; q < kQuarters; ++q) {
      float32x4_t four[4];
      for (int row = 0; row < 4; ++row) four[row] = rows[4 * i + row].quarters[q];
      const float32x4x2_t low = vtrnq_f32(four[0], four[1]), high = vtrnq_f32(four[2], four[3]);
      for (int odd = 0; odd < 2; ++odd) {
        turned[4 * q + odd].quarters[i] = vcombine_f32(vget_low_f32(low.val[odd]), vget_low_f32(high.val[odd]));
        turned[4 * q + 2 + odd].quarters[i] = vcombine_f32(vget_high_f32(low.val[odd]), vget_high_f32(high.val[odd]));
      }
    }
  for (int i = 0; i < kLanes; ++i) rows[i] = turned[i];
}

// How a product keeps the numbers of its rows: 128 less, so that they are signed as the weights are.
using Rounded = int8_t;
constexpr int32_t kRoundedZero = 128;

INLINE Integers AllIntegers(int32_t number) { EACH_QUARTER(Integers, vdupq_n_s32(number)); }
INLINE Integers AddIntegers(Integers a, Integers b) {
  EACH_QUARTER(Integers, vaddq_s32(a.quarters[q], b.quarters[q]));
}
INLINE Integers MultiplyIntegers(Integers a, Integers b) {
  EACH_QUARTER(Integers, vmulq_s32(a.quarters[q], b.quarters[q]));
}
INLINE Integers LoadIntegers(const int32_t* numbers) { EACH_QUARTER(Integers, vld1q_s32(numbers + 4 * q)); }
INLINE void StoreIntegers(int32_t* to, Integers numbers) {
#pragma GCC unroll 4
  for (int q = 0; q < kQuarters; ++q) vst1q_s32(to + 4 * q, numbers.quarters[q]);
}
INLINE Integers ToIntegers(Floats numbers) { EACH_QUARTER(Integers, vcvtnq_s32_f32(numbers.quarters[q])); }
INLINE Floats ToFloats(Integers numbers) { EACH_QUARTER(Floats, vcvtq_f32_s32(numbers.quarters[q])); }
INLINE void StoreRounded(Rounded* to, Integers numbers) {
  const int16x8_t low = vcombine_s16(vmovn_s32(numbers.quarters[0]), vmovn_s32(numbers.quarters[1]));
  const int16x8_t high = vcombine_s16(vmovn_s32(numbers.quarters[2]), vmovn_s32(numbers.quarters[3]));
  vst1q_s8(to, vcombine_s8(vmovn_s16(low), vmovn_s16(high)));
}

INLINE int8x16_t Broadcast(const Rounded* four) {
  int32_t value;
  std::memcpy(&value, four, sizeof value);
  return vreinterpretq_s8_s32(vdupq_n_s32(value));
}

// Adds to the sums of `Rows` rows and of `Columns` columns of a panel their products.
template <int Rows, int Columns>
INLINE void SumUpColumns(const Rounded* rows, int64_t stride, const int8_t* weights, int64_t groups, int64_t ahead,
                         int32_t* totals) {
  int32x4_t sums[Rows][Columns / 4];
#pragma GCC unroll 6
  for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 8
    for (int part = 0; part < Columns / 4; ++part) sums[i][part] = vld1q_s32(totals + i * kPanelColumns + 4 * part);
  for (int64_t group = 0; group < groups; ++group, weights += kPanelStride) {
    __builtin_prefetch(weights + ahead);
    __builtin_prefetch(weights + ahead + 64);
    int8x16_t columns[Columns / 4];
#pragma GCC unroll 8
    for (int part = 0; part < Columns / 4; ++part) columns[part] = vld1q_s8(weights + part * 4 * kGroup);
#pragma GCC unroll 6
    for (int i = 0; i < Rows; ++i) {
      const int8x16_t four = Broadcast(rows + i * stride + group * kGroup);
#pragma GCC unroll 8
      for (int part = 0; part < Columns / 4; ++part) sums[i][part] = vdotq_s32(sums[i][part], columns[part], four);
    }
  }
#pragma GCC unroll 6
  for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 8
    for (int part = 0; part < Columns / 4; ++part) vst1q_s32(totals + i * kPanelColumns + 4 * part, sums[i][part]);
}

#ifdef TRIFOLD_MATRIX_PRODUCTS

// Adds to the sums of `Rows` rows and of `Columns` columns of a panel their products, two rows with two columns at a time.
template <int Rows, int Columns>
INLINE void SumUpPairs(const Rounded* rows, int64_t stride, const int8_t* weights, int64_t groups, int64_t ahead,
                       int32_t* totals) {
  constexpr int kPairs = (Rows + 1) / 2;  // of an odd number the last row is its own second
  int32x4_t sums[kPairs][Columns / 4][2];
#pragma GCC unroll 3
  for (int pair = 0; pair < kPairs; ++pair)
#pragma GCC unroll 8
    for (int part = 0; part < Columns / 4; ++part) sums[pair][part][0] = sums[pair][part][1] = vdupq_n_s32(0);
  for (int64_t group = 0; group < groups; group += 2, weights += 2 * kPanelStride) {
    for (int line = 0; line < 2 * kPanelStride; line += 64) __builtin_prefetch(weights + ahead + line);
    int8x16_t eight[kPairs];
#pragma GCC unroll 3
    for (int pair = 0; pair < kPairs; ++pair) {
      const Rounded *first = rows + 2 * pair * stride, *second = 2 * pair + 1 < Rows ? first + stride : first;
      eight[pair] = vcombine_s8(vld1_s8(first + group * kGroup), vld1_s8(second + group * kGroup));
    }
    const bool is_last = group + 1 == groups;  // then what is behind it are another panel's
#pragma GCC unroll 8
    for (int part = 0; part < Columns / 4; ++part) {
      const int8_t* place = weights + part * 4 * kGroup;
      const int32x4_t four = vreinterpretq_s32_s8(vld1q_s8(place));
      const int32x4_t next = is_last ? vdupq_n_s32(0) : vreinterpretq_s32_s8(vld1q_s8(place + kPanelStride));
      const int8x16_t left = vreinterpretq_s8_s32(vzip1q_s32(four, next));
      const int8x16_t right = vreinterpretq_s8_s32(vzip2q_s32(four, next));
#pragma GCC unroll 3
      for (int pair = 0; pair < kPairs; ++pair) {
        sums[pair][part][0] = vmmlaq_s32(sums[pair][part][0], eight[pair], left);
        sums[pair][part][1] = vmmlaq_s32(sums[pair][part][1], eight[pair], right);
      }
    }
  }
#pragma GCC unroll 6
  for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 8
    for (int part = 0; part < Columns / 4; ++part) {
      const int32x4_t left = sums[i / 2][part][0], right = sums[i / 2][part][1];
      const int32x4_t products = i % 2 == 0 ? vcombine_s32(vget_low_s32(left), vget_low_s32(right))
                                            : vcombine_s32(vget_high_s32(left), vget_high_s32(right));
      int32_t* to = totals + i * kPanelColumns + 4 * part;
      vst1q_s32(to, vaddq_s32(vld1q_s32(to), products));
    }
}

#endif

// Adds to the sums of `Rows` rows and of a panel's columns their products, and asks for what lies `ahead` of the weights.
template <int Rows>
INLINE void SumUp(const Rounded* rows, int64_t stride, const int8_t* weights, int64_t groups, int64_t ahead,
                  int32_t (*totals)[kPanelColumns]) {
  constexpr int kColumns = Rows <= 2 ? 32 : 16;  // whose sums, with their weights, fit into the registers
  for (int column = 0; column < kPanelColumns; column += kColumns) {
    int32_t* some = totals[0] + column;
#ifdef TRIFOLD_MATRIX_PRODUCTS
    if constexpr (Rows > 1) {
      SumUpPairs<Rows, kColumns>(rows, stride, weights + column * kGroup, groups, ahead, some);
      continue;
    }
#endif
    SumUpColumns<Rows, kColumns>(rows, stride, weights + column * kGroup, groups, ahead, some);
  }
}

#undef EACH_QUARTER

}  // namespace
}  // namespace trifold
