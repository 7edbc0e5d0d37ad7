// Sixteen numbers in two registers of AVX2, for processors without AVX-512 VNNI: AMD before Zen 4 and, where
// TRIFOLD_AVX_VNNI is defined, Intel's desktops since Alder Lake and its servers of many small cores, whose AVX-VNNI sums
// up four products of 8 bits at a time.

#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "linear.h"

#if defined(TRIFOLD_AVX_VNNI) && defined(TRIFOLD_EVEX)  // tests: the same instruction as AVX-512 has it
#define SIMD __attribute__((target("avx2,fma,f16c,avx512vl,avx512vnni")))
#elif defined(TRIFOLD_AVX_VNNI)
#define SIMD __attribute__((target("avx2,fma,f16c,avxvnni")))
#else
#define SIMD __attribute__((target("avx2,fma,f16c")))
#endif
#define INLINE SIMD inline __attribute__((always_inline))

namespace trifold {
namespace {

constexpr int64_t kLanes = 16;
constexpr int64_t kRegisterRows = 6;             // of a product at a time: their sums fill 12 of 16 registers
constexpr int kMostQueries = 2, kMostParts = 2;  // of attention at a time: their sums fill 8
constexpr int kScoredTokens = 4;                 // whose scores are summed up at a time

struct Floats {
  __m256 low, high;
};
struct Integers {
  __m256i low, high;
};
struct Lanes {  // all bits of a lane are set, or none
  __m256i low, high;
};

INLINE Floats All(float number) { return {_mm256_set1_ps(number), _mm256_set1_ps(number)}; }
INLINE Floats Add(Floats a, Floats b) { return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)}; }
INLINE Floats Subtract(Floats a, Floats b) { return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)}; }
INLINE Floats Multiply(Floats a, Floats b) { return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)}; }
INLINE Floats Divide(Floats a, Floats b) { return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)}; }
INLINE Floats MultiplyAdd(Floats a, Floats b, Floats c) {  // a · b + c
  return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}
INLINE Floats SubtractProduct(Floats a, Floats b, Floats c) {  // c − a · b
  return {_mm256_fnmadd_ps(a.low, b.low, c.low), _mm256_fnmadd_ps(a.high, b.high, c.high)};
}
INLINE Floats Max(Floats a, Floats b) {  // b, where either is no number
  return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)};
}
INLINE Floats Min(Floats a, Floats b) {  // the same
  return {_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high)};
}
INLINE Floats Absolute(Floats a) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_andnot_ps(sign, a.low), _mm256_andnot_ps(sign, a.high)};
}
INLINE Floats RoundToWhole(Floats a) {
  constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  return {_mm256_round_ps(a.low, kNearest), _mm256_round_ps(a.high, kNearest)};
}

// For whole powers from −190 to 63, and numbers near 1: these stay exact with 2^−64, so that only one product is rounded.
INLINE __m256 TimesPowerOfTwo(__m256 a, __m256 power) {
  constexpr int kBias = 127, kFractionBits = 23, kFirst = -64;
  const __m256i rest = _mm256_add_epi32(_mm256_cvtps_epi32(power), _mm256_set1_epi32(kBias - kFirst));
  const __m256 first = _mm256_mul_ps(a, _mm256_set1_ps(0x1p-64f));
  return _mm256_mul_ps(first, _mm256_castsi256_ps(_mm256_slli_epi32(rest, kFractionBits)));
}
INLINE Floats TimesPowerOfTwo(Floats a, Floats power) {
  return {TimesPowerOfTwo(a.low, power.low), TimesPowerOfTwo(a.high, power.high)};
}

INLINE float First(Floats a) { return _mm256_cvtss_f32(a.low); }
INLINE float Sum(Floats a) {  // of halves, of their halves, and so on
  const __m256 eight = _mm256_add_ps(a.low, a.high);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
INLINE float Greatest(Floats a) {
  const __m256 eight = _mm256_max_ps(a.low, a.high);
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

INLINE __m256i EightLanesBetween(int64_t first, int64_t last) {
  const __m256i numbers = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const __m256i before = _mm256_set1_epi32(static_cast<int32_t>(first) - 1);
  const __m256i behind = _mm256_set1_epi32(static_cast<int32_t>(last));
  return _mm256_and_si256(_mm256_cmpgt_epi32(numbers, before), _mm256_cmpgt_epi32(behind, numbers));
}
// Lanes first … last−1, of which some may be outside of the registers.
INLINE Lanes LanesBetween(int64_t first, int64_t last) {
  first = std::max<int64_t>(0, first), last = std::min<int64_t>(kLanes, last);
  return {EightLanesBetween(first, last), EightLanesBetween(first - 8, last - 8)};
}
INLINE Floats Select(Lanes lanes, Floats inside, Floats outside) {
  return {_mm256_blendv_ps(outside.low, inside.low, _mm256_castsi256_ps(lanes.low)),
          _mm256_blendv_ps(outside.high, inside.high, _mm256_castsi256_ps(lanes.high))};
}

INLINE Floats Load(const float* numbers) { return {_mm256_loadu_ps(numbers), _mm256_loadu_ps(numbers + 8)}; }
INLINE __m256 LoadEightHalves(const uint16_t* halves) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(halves)));
}
INLINE Floats Load(const uint16_t* halves) { return {LoadEightHalves(halves), LoadEightHalves(halves + 8)}; }
INLINE Floats Load(Lanes lanes, const float* numbers) {  // else 0
  return {_mm256_maskload_ps(numbers, lanes.low), _mm256_maskload_ps(numbers + 8, lanes.high)};
}

INLINE void Store(float* to, Floats numbers) {
  _mm256_storeu_ps(to, numbers.low);
  _mm256_storeu_ps(to + 8, numbers.high);
}
INLINE void StoreHalves(uint16_t* to, Floats numbers) {
  constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_cvtps_ph(numbers.low, kNearest));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 8), _mm256_cvtps_ph(numbers.high, kNearest));
}
INLINE void Store(Lanes lanes, float* to, Floats numbers) {
  _mm256_maskstore_ps(to, lanes.low, numbers.low);
  _mm256_maskstore_ps(to + 8, lanes.high, numbers.high);
}

// Of each of two registers the sums of its halves of eight numbers, the first's before the second's.
INLINE __m256 FoldEight(Floats first, Floats second) {
  const __m256 one = _mm256_add_ps(first.low, first.high), other = _mm256_add_ps(second.low, second.high);
  return _mm256_add_ps(_mm256_permute2f128_ps(one, other, 0x20), _mm256_permute2f128_ps(one, other, 0x31));
}

// Writes the `Sum` of each of `kScoredTokens` registers.
INLINE void StoreSums(float* to, Floats* registers) {
  const __m256 first = FoldEight(registers[0], registers[1]), second = FoldEight(registers[2], registers[3]);
  const __m256 twos = _mm256_add_ps(_mm256_shuffle_ps(first, second, 0x44), _mm256_shuffle_ps(first, second, 0xee));
  const __m256 ones = _mm256_hadd_ps(twos, twos);  // of registers 0, 2; then of 1, 3
  _mm_storeu_ps(to, _mm_unpacklo_ps(_mm256_castps256_ps128(ones), _mm256_extractf128_ps(ones, 1)));
}

// Turns eight registers of eight numbers over.
INLINE void TurnEightOver(__m256* rows) {
  __m256 turned[8];
#pragma GCC unroll 2
  for (int i = 0; i < 8; i += 4) {
    const __m256 first = _mm256_unpacklo_ps(rows[i], rows[i + 1]), second = _mm256_unpackhi_ps(rows[i], rows[i + 1]);
    const __m256 third = _mm256_unpacklo_ps(rows[i + 2], rows[i + 3]);
    const __m256 fourth = _mm256_unpackhi_ps(rows[i + 2], rows[i + 3]);
    turned[i] = _mm256_shuffle_ps(first, third, 0x44);
    turned[i + 1] = _mm256_shuffle_ps(first, third, 0xee);
    turned[i + 2] = _mm256_shuffle_ps(second, fourth, 0x44);
    turned[i + 3] = _mm256_shuffle_ps(second, fourth, 0xee);
  }
  // Half h of turned[4·i + j] is now column 4·h + j of rows 4·i … 4·i + 3.
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    rows[j] = _mm256_permute2f128_ps(turned[j], turned[4 + j], 0x20);
    rows[4 + j] = _mm256_permute2f128_ps(turned[j], turned[4 + j], 0x31);
  }
}

// Turns sixteen registers over: register i becomes what was in lane i of each.
INLINE void TurnOver(Floats* rows) {
  __m256 quarters[2][2][8];  // by halves of rows and of lanes
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) quarters[i / 8][0][i % 8] = rows[i].low, quarters[i / 8][1][i % 8] = rows[i].high;
  for (auto& half : quarters)
    for (__m256* quarter : half) TurnEightOver(quarter);
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) rows[i] = {quarters[0][i / 8][i % 8], quarters[1][i / 8][i % 8]};
}

INLINE Integers AllIntegers(int32_t number) { return {_mm256_set1_epi32(number), _mm256_set1_epi32(number)}; }
INLINE Integers AddIntegers(Integers a, Integers b) {
  return {_mm256_add_epi32(a.low, b.low), _mm256_add_epi32(a.high, b.high)};
}
INLINE Integers MultiplyIntegers(Integers a, Integers b) {
  return {_mm256_mullo_epi32(a.low, b.low), _mm256_mullo_epi32(a.high, b.high)};
}
INLINE __m256i LoadEightIntegers(const int32_t* numbers) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(numbers));
}
INLINE Integers LoadIntegers(const int32_t* numbers) {
  return {LoadEightIntegers(numbers), LoadEightIntegers(numbers + 8)};
}
INLINE void StoreIntegers(int32_t* to, Integers numbers) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), numbers.low);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + 8), numbers.high);
}
INLINE Integers ToIntegers(Floats numbers) {
  return {_mm256_cvtps_epi32(numbers.low), _mm256_cvtps_epi32(numbers.high)};
}
INLINE Floats ToFloats(Integers numbers) {
  return {_mm256_cvtepi32_ps(numbers.low), _mm256_cvtepi32_ps(numbers.high)};
}

constexpr int32_t kRoundedZero = 0;

#ifdef TRIFOLD_AVX_VNNI

using Rounded = uint8_t;  // how a product keeps the numbers of its rows
constexpr int kRegisterColumns = 8;  // of weights

INLINE void StoreRounded(Rounded* to, Integers numbers) {
  const __m256i mixed = _mm256_packus_epi32(numbers.low, numbers.high);  // halves of both in turns
  const __m256i sixteen = _mm256_permute4x64_epi64(mixed, 0xd8);
  const __m128i low = _mm256_castsi256_si128(sixteen), high = _mm256_extracti128_si256(sixteen, 1);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm_packus_epi16(low, high));
}

INLINE __m256i Broadcast(const Rounded* four) {
  int32_t value;
  std::memcpy(&value, four, sizeof value);
  return _mm256_set1_epi32(value);
}

INLINE __m256i LoadColumns(const int8_t* weights) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(weights));
}

// Adds the products of four unsigned with four signed bytes to each sum. The intrinsic makes GCC 12 copy every sum.
INLINE __m256i AddProducts(__m256i sums, __m256i rows, __m256i weights) {
#ifdef TRIFOLD_EVEX
  __asm__("%{evex%} vpdpbusd %2, %1, %0" : "+x"(sums) : "x"(rows), "x"(weights));
#else
  __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sums) : "x"(rows), "x"(weights));
#endif
  return sums;
}

// Adds what two registers have summed up to the sums of their columns.
INLINE void AddSums(int32_t* to, __m256i first, __m256i second) {
  StoreIntegers(to, AddIntegers(LoadIntegers(to), {first, second}));
}

#else

// How a product keeps the numbers of its rows: in 16 bits, as AVX2's instruction that takes 8 adds up two products in 16
// bits, which are too few.
using Rounded = int16_t;
constexpr int kRegisterColumns = 4;  // of weights

INLINE void StoreRounded(Rounded* to, Integers numbers) {
  const __m256i mixed = _mm256_packs_epi32(numbers.low, numbers.high);  // halves of both in turns
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm256_permute4x64_epi64(mixed, 0xd8));
}

INLINE __m256i Broadcast(const Rounded* four) {
  long long value;
  std::memcpy(&value, four, sizeof value);
  return _mm256_set1_epi64x(value);
}

INLINE __m256i LoadColumns(const int8_t* weights) {
  return _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(weights)));
}

// Adds the products of two with two numbers of 16 bits to each sum, of which a column has two, side by side. Of
// intrinsics GCC 12 puts off the additions, and has too few registers then.
INLINE __m256i AddProducts(__m256i sums, __m256i rows, __m256i weights) {
  __m256i products;
  __asm__("vpmaddwd %3, %2, %1\n\tvpaddd %1, %0, %0" : "+x"(sums), "=&x"(products) : "x"(rows), "x"(weights));
  return sums;
}

// Adds what two registers have summed up to the sums of their columns.
INLINE void AddSums(int32_t* to, __m256i first, __m256i second) {
  const __m256i mixed = _mm256_hadd_epi32(first, second);  // halves of both in turns
  const __m256i products = _mm256_permute4x64_epi64(mixed, 0xd8);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm256_add_epi32(LoadEightIntegers(to), products));
}

#endif

// Adds to the sums of `Rows` rows and of the columns of `Parts` registers of a panel their products.
template <int Rows, int Parts>
INLINE void SumUpColumns(const Rounded* rows, int64_t stride, const int8_t* weights, int64_t groups, int64_t ahead,
                         int32_t* totals) {
  constexpr int kPartStride = kRegisterColumns * kGroup;
  __m256i sums[Rows][Parts];
#pragma GCC unroll 6
  for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 8
    for (int part = 0; part < Parts; ++part) sums[i][part] = _mm256_setzero_si256();
  for (int64_t group = 0; group < groups; ++group, weights += kPanelStride) {
    if constexpr (Parts * kRegisterColumns == kPanelColumns) {
      __builtin_prefetch(weights + ahead);
      __builtin_prefetch(weights + ahead + 64);
    }
    if constexpr (Rows < Parts) {  // what there is less of is held in registers
      __m256i four[Rows];
#pragma GCC unroll 3
      for (int i = 0; i < Rows; ++i) four[i] = Broadcast(rows + i * stride + group * kGroup);
#pragma GCC unroll 8
      for (int part = 0; part < Parts; ++part) {
        const __m256i columns = LoadColumns(weights + part * kPartStride);
#pragma GCC unroll 3
        for (int i = 0; i < Rows; ++i) sums[i][part] = AddProducts(sums[i][part], four[i], columns);
      }
    } else {
      __m256i columns[Parts];
#pragma GCC unroll 2
      for (int part = 0; part < Parts; ++part) columns[part] = LoadColumns(weights + part * kPartStride);
#pragma GCC unroll 6
      for (int i = 0; i < Rows; ++i) {
        const __m256i four = Broadcast(rows + i * stride + group * kGroup);
#pragma GCC unroll 2
        for (int part = 0; part < Parts; ++part) sums[i][part] = AddProducts(sums[i][part], four, columns[part]);
      }
    }
  }
#pragma GCC unroll 6
  for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 4
    for (int part = 0; part < Parts; part += 2)
      AddSums(totals + i * kPanelColumns + part * kRegisterColumns, sums[i][part], sums[i][part + 1]);
}

// Adds to the sums of `Rows` rows and of a panel's columns their products, and asks for what lies `ahead` of the weights.
template <int Rows>
INLINE void SumUp(const Rounded* rows, int64_t stride, const int8_t* weights, int64_t groups, int64_t ahead,
                  int32_t (*totals)[kPanelColumns]) {
  constexpr int kRowsOfFour = kRegisterColumns == 8 ? 3 : 2;  // with AVX2 alone products need a register, too
  constexpr int kMostParts = Rows == 1 ? 8 : Rows <= kRowsOfFour ? 4 : 2;  // whose sums fit into the registers
  constexpr int kParts = std::min<int>(kMostParts, kPanelColumns / kRegisterColumns);
  for (int column = 0; column < kPanelColumns; column += kParts * kRegisterColumns) {
    int32_t* some = totals[0] + column;
    SumUpColumns<Rows, kParts>(rows, stride, weights + column * kGroup, groups, ahead, some);
  }
}

}  // namespace
}  // namespace trifold
