// A product in three parts: rows are rounded to 8 bits, sums of integers are exact, and sums become floats again. Each
// does what the operators of ONNX Runtime do that stand for it otherwise, in their order, so that answers are the same
// to the last bit: QuantizeLinear and MatMulIntegerToFloat; by rows, Abs, ReduceMax and Div before, Mul and Add behind.
//
// With few rows the time is that of reading the matrix, so each thread reads panels that lie side by side, each once.
// With many it is that of multiplying, at one instruction a cycle, so sums stay in registers and rows in the cache.

#include "linear.h"

#if defined(__x86_64__) && defined(__GNUC__)

#include <immintrin.h>

#include <algorithm>
#include <cstring>

#define VNNI __attribute__((target("avx512f,avx512bw,avx512vl,avx512vnni")))

namespace trifold {
namespace {

constexpr int64_t kLanes = 16;                         // 32-bit numbers in a register
constexpr int64_t kPanelStride = kPanelColumns * kGroup;  // bytes of a panel's group
constexpr int64_t kTileRows = 12;                      // their sums fill 24 of 32 registers
constexpr int64_t kBlockBytes = 256 * 1024;            // of rows that stay in a core's cache while panels go by
constexpr int64_t kTaskBytes = 48 * 1024;              // of a matrix, once a tile: what a thread takes at a time
constexpr int64_t kLeastPanels = 2;                    // whose answers lie side by side, and are written so
constexpr int64_t kAhead = 16 * 1024;                  // bytes between what is read and what is asked for of memory
constexpr int64_t kRowsTaskNumbers = 8 * 1024;         // of rows to be rounded: what a thread takes at a time
constexpr int64_t kTooSmall = 128 * 1024;              // products of numbers that are done sooner than others are woken

int64_t RoundedUp(int64_t count, int64_t unit) { return (count + unit - 1) / unit * unit; }

__mmask16 FirstLanes(int64_t count) { return count >= kLanes ? 0xffff : count <= 0 ? 0 : (1u << count) - 1; }

// Adds the products of four unsigned with four signed bytes to each sum. The intrinsic of the same name makes GCC 12
// copy every sum once an instruction, which halves the speed.
VNNI inline __attribute__((always_inline)) __m512i AddProducts(__m512i sums, __m512i rows, __m512i weights) {
  __asm__("vpdpbusd %2, %1, %0" : "+v"(sums) : "v"(rows), "v"(weights));
  return sums;
}

VNNI inline __attribute__((always_inline)) __m512i Broadcast(const uint8_t* four) {
  int32_t value;
  std::memcpy(&value, four, sizeof value);
  return _mm512_set1_epi32(value);
}

// Rows in 8 bits, and what is to become of them.
struct Product {
  const Linear& linear;
  const float* x;
  uint8_t* rounded;  // (rows, stride)
  float* largest;    // (rows), by rows
  float* y;
  int64_t rows, stride;
  int64_t panels_a_task, rows_a_task, tasks_a_block;
};

VNNI float Largest(const float* x, int64_t count) {
  __m512 largest = _mm512_setzero_ps();
  for (int64_t i = 0; i < count; i += kLanes)
    largest = _mm512_max_ps(largest, _mm512_abs_ps(_mm512_maskz_loadu_ps(FirstLanes(count - i), x + i)));
  return _mm512_reduce_max_ps(largest);
}

VNNI void RoundRow(const Product& product, int64_t row) {
  const Linear& linear = product.linear;
  const float* x = product.x + row * linear.depth;
  uint8_t* rounded = product.rounded + row * product.stride;
  const __m512 step = _mm512_set1_ps(linear.step);
  const __m512 least = _mm512_set1_ps(static_cast<float>(-linear.zero_point));
  const __m512 most = _mm512_set1_ps(static_cast<float>(255 - linear.zero_point));
  const __m512i zero_point = _mm512_set1_epi32(linear.zero_point);
  __m512 largest = _mm512_set1_ps(1);
  if (linear.by_rows) largest = _mm512_set1_ps(product.largest[row] = Largest(x, linear.depth));
  for (int64_t i = 0; i < linear.depth; i += kLanes) {
    const __mmask16 lanes = FirstLanes(linear.depth - i);
    __m512 value = _mm512_maskz_loadu_ps(lanes, x + i);
    if (linear.by_rows) value = _mm512_div_ps(value, largest);
    value = _mm512_div_ps(value, step);
    value = _mm512_min_ps(_mm512_max_ps(value, least), most);  // what is no number becomes the least
    const __m512i integer = _mm512_add_epi32(_mm512_cvtps_epi32(value), zero_point);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(rounded + i), _mm512_maskz_cvtepi32_epi8(lanes, integer));
  }
}

// Multiplies `Rows` rows with one panel.
template <int Rows>
VNNI void Tile(const Product& product, int64_t row, int64_t panel, int64_t ahead) {
  const Linear& linear = product.linear;
  const int64_t groups = linear.Groups(), column = panel * kPanelColumns;
  const uint8_t* rounded = product.rounded + row * product.stride;
  const int8_t* weights = linear.weights + panel * groups * kPanelStride;
  __m512i sums[Rows][2];
#pragma GCC unroll 12
  for (int i = 0; i < Rows; ++i)
    for (int half = 0; half < 2; ++half) sums[i][half] = _mm512_loadu_si512(linear.offsets + column + half * kLanes);
  int64_t group = 0;
  if constexpr (Rows == 1) {  // an instruction waits for the one before it on the same sum: two more sums fill the time
    __m512i others[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()};
    for (; group + 2 <= groups; group += 2, weights += 2 * kPanelStride) {
      for (int line = 0; line < 2 * kPanelStride; line += 64)
        _mm_prefetch(reinterpret_cast<const char*>(weights) + ahead + line, _MM_HINT_T0);
      const __m512i first = Broadcast(rounded + group * kGroup), second = Broadcast(rounded + (group + 1) * kGroup);
      for (int half = 0; half < 2; ++half) {
        sums[0][half] = AddProducts(sums[0][half], first, _mm512_loadu_si512(weights + half * 64));
        others[half] = AddProducts(others[half], second, _mm512_loadu_si512(weights + kPanelStride + half * 64));
      }
    }
    for (int half = 0; half < 2; ++half) sums[0][half] = _mm512_add_epi32(sums[0][half], others[half]);
  }
  for (; group < groups; ++group, weights += kPanelStride) {
    _mm_prefetch(reinterpret_cast<const char*>(weights) + ahead, _MM_HINT_T0);
    _mm_prefetch(reinterpret_cast<const char*>(weights) + ahead + 64, _MM_HINT_T0);
    const __m512i first = _mm512_loadu_si512(weights), second = _mm512_loadu_si512(weights + 64);
#pragma GCC unroll 12
    for (int i = 0; i < Rows; ++i) {
      const __m512i four = Broadcast(rounded + i * product.stride + group * kGroup);
      sums[i][0] = AddProducts(sums[i][0], four, first);
      sums[i][1] = AddProducts(sums[i][1], four, second);
    }
  }
  for (int half = 0; half < 2; ++half) {
    const int64_t place = column + half * kLanes;
    const __mmask16 lanes = FirstLanes(linear.columns - place);
    const __m512 scales = _mm512_loadu_ps(linear.scales + place);
    const __m512 bias = linear.bias ? _mm512_maskz_loadu_ps(lanes, linear.bias + place) : _mm512_setzero_ps();
#pragma GCC unroll 12
    for (int i = 0; i < Rows; ++i) {
      __m512 y = _mm512_mul_ps(_mm512_cvtepi32_ps(sums[i][half]), scales);
      if (linear.by_rows) y = _mm512_mul_ps(y, _mm512_set1_ps(product.largest[row + i]));
      if (linear.bias) y = _mm512_add_ps(y, bias);
      float* to = product.y + (row + i) * linear.columns + place;
      if (lanes == 0xffff) {
        _mm512_storeu_ps(to, y);
      } else {
        _mm512_mask_storeu_ps(to, lanes, y);
      }
    }
  }
}

using AnyTile = void (*)(const Product&, int64_t row, int64_t panel, int64_t ahead);
constexpr AnyTile kTiles[kTileRows] = {Tile<1>, Tile<2>, Tile<3>, Tile<4>,  Tile<5>,  Tile<6>,
                                       Tile<7>, Tile<8>, Tile<9>, Tile<10>, Tile<11>, Tile<12>};

// Rows that a thread rounds at a time.
int64_t RowsToRound(const Linear& linear) { return std::max<int64_t>(1, kRowsTaskNumbers / linear.depth); }

void RoundRows(void* data, size_t task) {
  const Product& product = *static_cast<const Product*>(data);
  const int64_t count = RowsToRound(product.linear);
  const int64_t first = static_cast<int64_t>(task) * count;
  for (int64_t row = first; row < std::min(product.rows, first + count); ++row) RoundRow(product, row);
}

// Multiplies a block of rows with a few panels.
void MultiplyBlock(void* data, size_t task) {
  const Product& product = *static_cast<const Product*>(data);
  const int64_t block = static_cast<int64_t>(task) / product.tasks_a_block;
  const int64_t part = static_cast<int64_t>(task) % product.tasks_a_block;
  const int64_t last_row = std::min(product.rows, (block + 1) * product.rows_a_task);
  const int64_t last_panel = std::min(product.linear.Panels(), (part + 1) * product.panels_a_task);
  int64_t count;
  for (int64_t row = block * product.rows_a_task; row < last_row; row += count) {
    const int64_t left = last_row - row;
    count = left >= 2 * kTileRows ? kTileRows : left > kTileRows ? (left + 1) / 2 : left;
    const int64_t ahead = row == block * product.rows_a_task ? kAhead : 0;
    for (int64_t panel = part * product.panels_a_task; panel < last_panel; ++panel)
      kTiles[count - 1](product, row, panel, ahead);
  }
}

// Rows lie a little further apart than they are long: at powers of two all would want the same places of the cache.
int64_t Stride(const Linear& linear) { return RoundedUp(linear.depth, 64) + 64; }

}  // namespace

bool IsSupported() {
  return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512vnni");
}

size_t ScratchBytes(const Linear& linear, int64_t rows) {
  return static_cast<size_t>(rows * (Stride(linear) + static_cast<int64_t>(sizeof(float))));
}

void Multiply(const Linear& linear, const float* x, int64_t rows, float* y, void* scratch, const Threads& threads) {
  const int64_t stride = Stride(linear);
  float* largest = static_cast<float*>(scratch);
  Product product{linear, x, reinterpret_cast<uint8_t*>(largest + rows), largest, y, rows, stride, 0, 0, 0};
  const int64_t rounding = RowsToRound(linear);
  threads.ForEach(static_cast<size_t>((rows + rounding - 1) / rounding), RoundRows, &product);

  const int64_t blocks = (rows * stride + kBlockBytes - 1) / kBlockBytes;
  product.rows_a_task = RoundedUp((rows + blocks - 1) / blocks, kTileRows);
  const int64_t task_bytes = linear.Groups() * kPanelStride * (product.rows_a_task / kTileRows);
  const bool is_small = rows * linear.depth * linear.columns < kTooSmall;
  product.panels_a_task = is_small ? linear.Panels() : std::max<int64_t>(kLeastPanels, kTaskBytes / task_bytes);
  product.tasks_a_block = (linear.Panels() + product.panels_a_task - 1) / product.panels_a_task;
  threads.ForEach(static_cast<size_t>(blocks * product.tasks_a_block), MultiplyBlock, &product);
}

}  // namespace trifold

#else  // another processor or compiler: the library is built, and says that it can do nothing

namespace trifold {

bool IsSupported() { return false; }
size_t ScratchBytes(const Linear&, int64_t) { return 0; }
void Multiply(const Linear&, const float*, int64_t, float*, void*, const Threads&) {}

}  // namespace trifold

#endif
