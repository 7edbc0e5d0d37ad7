// A product in three parts: rows are rounded to 8 bits, sums of integers are exact, and sums become floats again. Each
// does what the operators of ONNX Runtime do that stand for it otherwise, in their order, so that answers are the same
// to the last bit: QuantizeLinear and MatMulIntegerToFloat; by rows, Abs, ReduceMax and Div before, Mul and Add behind.
//
// With few rows the time is that of reading the matrix, so each thread reads panels that lie side by side, each once.
// With many it is that of multiplying, at one instruction a cycle, so sums stay in registers and rows in the cache.
// Where the processor has tiles (AMX), these sum up many rows instead: a panel's group is one row of two tiles, so
// matrices lie as they need them, and as sums are exact integers, answers are the same with them and without.

#include "linear.h"

#if defined(__x86_64__) && defined(__GNUC__)

#include <immintrin.h>

#include <algorithm>
#include <cstring>
#include <memory>

#ifndef TRIFOLD_TILES  // tests have others, of plain code, for processors without
#define TRIFOLD_TILES "tiles.h"
#endif
#include TRIFOLD_TILES

#define VNNI __attribute__((target("avx512f,avx512bw,avx512vl,avx512vnni")))
#define INLINE inline __attribute__((always_inline))

namespace trifold {
namespace {

constexpr int64_t kLanes = 16;                         // 32-bit numbers in a register
constexpr int64_t kPanelStride = kPanelColumns * kGroup;  // bytes of a panel's group
constexpr int64_t kRegisterRows = 12;                  // their sums fill 24 of 32 registers
constexpr int64_t kTilePairRows = 2 * kTileRows;       // their sums fill 4 of 8 tiles
constexpr int64_t kTileGroups = kTileBytes / kGroup;   // of a row that one tile takes
constexpr int64_t kLeastTiledRows = 8;                 // with fewer the time is that of reading the matrix
constexpr int64_t kBlockBytes = 256 * 1024;            // of rows that stay in a core's cache while panels go by
constexpr int64_t kTaskBytes = 48 * 1024;              // of a matrix, once for some rows: what a thread takes at a time
constexpr int64_t kTiledTaskBytes = 96 * 1024;         // the same by tiles, which take less time
constexpr int64_t kLeastPanels = 2;                    // whose answers lie side by side, and are written so
constexpr int64_t kAhead = 16 * 1024;                  // bytes between what is read and what is asked for of memory
constexpr int64_t kRowsTaskNumbers = 8 * 1024;         // of rows to be rounded: what a thread takes at a time
constexpr int64_t kTooSmall = 128 * 1024;              // products of numbers that are done sooner than others are woken

int64_t RoundedUp(int64_t count, int64_t unit) { return (count + unit - 1) / unit * unit; }

__mmask16 FirstLanes(int64_t count) { return count >= kLanes ? 0xffff : count <= 0 ? 0 : (1u << count) - 1; }

// Adds the products of four unsigned with four signed bytes to each sum. The intrinsic of the same name makes GCC 12
// copy every sum once an instruction, which halves the speed.
VNNI INLINE __m512i AddProducts(__m512i sums, __m512i rows, __m512i weights) {
  __asm__("vpdpbusd %2, %1, %0" : "+v"(sums) : "v"(rows), "v"(weights));
  return sums;
}

VNNI INLINE __m512i Broadcast(const uint8_t* four) {
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
  bool is_tiled;
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

// Sixteen columns side by side, and what makes answers of their sums.
struct Columns {
  int64_t place;
  __mmask16 lanes;  // that are columns, and no filling
  __m512 scales, bias;

  VNNI INLINE Columns(const Linear& linear, int64_t place) : place(place), lanes(FirstLanes(linear.columns - place)) {
    scales = _mm512_loadu_ps(linear.scales + place);
    bias = linear.bias ? _mm512_maskz_loadu_ps(lanes, linear.bias + place) : _mm512_setzero_ps();
  }

  VNNI INLINE void Write(const Product& product, int64_t row, __m512i sums) const {
    __m512 y = _mm512_mul_ps(_mm512_cvtepi32_ps(sums), scales);
    if (product.linear.by_rows) y = _mm512_mul_ps(y, _mm512_set1_ps(product.largest[row]));
    if (product.linear.bias) y = _mm512_add_ps(y, bias);
    float* to = product.y + row * product.linear.columns + place;
    if (lanes == 0xffff) {
      _mm512_storeu_ps(to, y);
    } else {
      _mm512_mask_storeu_ps(to, lanes, y);
    }
  }
};

// Multiplies `Rows` rows with one panel.
template <int Rows>
VNNI void MultiplyRows(const Product& product, int64_t row, int64_t panel, int64_t ahead) {
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
#pragma GCC unroll 2
  for (int half = 0; half < 2; ++half) {
    const Columns columns(linear, column + half * kLanes);
#pragma GCC unroll 12
    for (int i = 0; i < Rows; ++i) columns.Write(product, row + i, sums[i][half]);
  }
}

using AnyRows = void (*)(const Product&, int64_t row, int64_t panel, int64_t ahead);
constexpr AnyRows kMultiplyRows[kRegisterRows] = {
    MultiplyRows<1>, MultiplyRows<2>, MultiplyRows<3>, MultiplyRows<4>,  MultiplyRows<5>,  MultiplyRows<6>,
    MultiplyRows<7>, MultiplyRows<8>, MultiplyRows<9>, MultiplyRows<10>, MultiplyRows<11>, MultiplyRows<12>};

// What the tiles hold: sums of the first rows and of those behind them, by a panel's halves; these rows; the halves.
enum TileOf { kFirstLeft, kFirstRight, kOtherLeft, kOtherRight, kFirstRows, kOtherRows, kLeft, kRight };

// Lays the tiles out for so many rows.
void LayOut(int64_t rows) {
  TileShapes shapes;
  const int64_t first = std::min(rows, kTileRows), others = rows - first;
  for (TileOf tile : {kFirstLeft, kFirstRight, kFirstRows}) shapes.Set(tile, first, kTileBytes);
  for (TileOf tile : {kOtherLeft, kOtherRight, kOtherRows}) shapes.Set(tile, others, kTileBytes);
  for (TileOf tile : {kLeft, kRight}) shapes.Set(tile, kTileGroups, kTileBytes);
  SetTiles(shapes);
}

// Multiplies up to `kTilePairRows` rows, for which tiles are laid out, with one panel.
VNNI void MultiplyTiles(const Product& product, int64_t row, int64_t count, int64_t panel, int64_t ahead) {
  const Linear& linear = product.linear;
  const int64_t groups = linear.Groups(), column = panel * kPanelColumns;
  const uint8_t* rounded = product.rounded + row * product.stride;
  const uint8_t* others = rounded + kTileRows * product.stride;
  const int8_t* weights = linear.weights + panel * groups * kPanelStride;
  const bool has_others = count > kTileRows;
  LoadTile<kFirstLeft>(linear.offsets + column, 0);  // the same for each row
  LoadTile<kFirstRight>(linear.offsets + column + kLanes, 0);
  if (has_others) {
    LoadTile<kOtherLeft>(linear.offsets + column, 0);
    LoadTile<kOtherRight>(linear.offsets + column + kLanes, 0);
  }
  for (int64_t group = 0; group < groups; group += kTileGroups, weights += kTileGroups * kPanelStride) {
    if (ahead > 0)
      for (int line = 0; line < kTileGroups * kPanelStride; line += 64)
        _mm_prefetch(reinterpret_cast<const char*>(weights) + ahead + line, _MM_HINT_T0);
    LoadTile<kLeft>(weights, kPanelStride);
    LoadTile<kRight>(weights + kPanelStride / 2, kPanelStride);
    LoadTile<kFirstRows>(rounded + group * kGroup, product.stride);
    AddTileProducts<kFirstLeft, kFirstRows, kLeft>();
    AddTileProducts<kFirstRight, kFirstRows, kRight>();
    if (has_others) {
      LoadTile<kOtherRows>(others + group * kGroup, product.stride);
      AddTileProducts<kOtherLeft, kOtherRows, kLeft>();
      AddTileProducts<kOtherRight, kOtherRows, kRight>();
    }
  }
  alignas(64) int32_t sums[2][kTilePairRows][kLanes];
  StoreTile<kFirstLeft>(sums[0][0], kTileBytes);
  StoreTile<kFirstRight>(sums[1][0], kTileBytes);
  if (has_others) {
    StoreTile<kOtherLeft>(sums[0][kTileRows], kTileBytes);
    StoreTile<kOtherRight>(sums[1][kTileRows], kTileBytes);
  }
  for (int half = 0; half < 2; ++half) {
    const Columns columns(linear, column + half * kLanes);
    for (int64_t i = 0; i < count; ++i) columns.Write(product, row + i, _mm512_load_si512(sums[half][i]));
  }
}

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
  const int64_t first_row = block * product.rows_a_task;
  const int64_t last_row = std::min(product.rows, first_row + product.rows_a_task);
  const int64_t first_panel = part * product.panels_a_task;
  const int64_t last_panel = std::min(product.linear.Panels(), first_panel + product.panels_a_task);
  int64_t count;
  for (int64_t row = first_row; row < last_row; row += count) {
    const int64_t left = last_row - row, ahead = row == first_row ? kAhead : 0;
    if (product.is_tiled) {
      count = std::min(left, kTilePairRows);
      if (row == first_row || count < kTilePairRows) LayOut(count);
      for (int64_t panel = first_panel; panel < last_panel; ++panel)
        MultiplyTiles(product, row, count, panel, ahead);
    } else {
      count = left >= 2 * kRegisterRows ? kRegisterRows : left > kRegisterRows ? (left + 1) / 2 : left;
      for (int64_t panel = first_panel; panel < last_panel; ++panel)
        kMultiplyRows[count - 1](product, row, panel, ahead);
    }
  }
  if (product.is_tiled) ReleaseTiles();
}

// Rows lie a little further apart than they are long: at powers of two all would want the same places of the cache.
int64_t Stride(const Linear& linear) { return RoundedUp(linear.depth, 64) + 64; }

void MultiplyBy(const Linear& linear, const float* x, int64_t rows, float* y, void* scratch, const Threads& threads,
                bool is_tiled) {
  const int64_t stride = Stride(linear);
  uint8_t* rounded = static_cast<uint8_t*>(scratch);
  float* largest = reinterpret_cast<float*>(rounded + rows * stride);
  Product product{linear, x, rounded, largest, y, rows, stride, is_tiled, 0, 0, 0};
  const int64_t rounding = RowsToRound(linear);
  threads.ForEach(static_cast<size_t>((rows + rounding - 1) / rounding), RoundRows, &product);

  const int64_t rows_at_a_time = is_tiled ? kTilePairRows : kRegisterRows;
  const int64_t blocks = (rows * stride + kBlockBytes - 1) / kBlockBytes;
  product.rows_a_task = RoundedUp((rows + blocks - 1) / blocks, rows_at_a_time);
  const int64_t panel_bytes = linear.Groups() * kPanelStride * (product.rows_a_task / rows_at_a_time);
  const int64_t task_bytes = is_tiled ? kTiledTaskBytes : kTaskBytes;
  const bool is_small = rows * linear.depth * linear.columns < kTooSmall;
  product.panels_a_task = is_small ? linear.Panels() : std::max<int64_t>(kLeastPanels, task_bytes / panel_bytes);
  product.tasks_a_block = (linear.Panels() + product.panels_a_task - 1) / product.panels_a_task;
  threads.ForEach(static_cast<size_t>(blocks * product.tasks_a_block), MultiplyBlock, &product);
}

// Whether a product by tiles is that by registers: before tiles are used for the first time, as few have such a processor
// to try a change on.
bool TilesAgree() {
  struct : Threads {
    void ForEach(size_t count, void (*run)(void*, size_t), void* data) const override {
      for (size_t i = 0; i < count; ++i) run(data, i);
    }
  } alone;
  constexpr int64_t kDepth = 2 * kTileBytes, kColumns = kPanelColumns, kRows = kTilePairRows + kTileRows + 1;
  int8_t weights[kDepth * kColumns];
  float scales[kColumns], x[kRows * kDepth], by_tiles[kRows * kColumns], by_registers[kRows * kColumns];
  int32_t offsets[kColumns];
  for (int64_t i = 0; i < kDepth * kColumns; ++i) weights[i] = static_cast<int8_t>(i * 37 % 255 - 127);
  std::fill_n(scales, kColumns, 1.0f);
  for (int64_t i = 0; i < kColumns; ++i) offsets[i] = static_cast<int32_t>(1000 * i - 9000);
  for (int64_t i = 0; i < kRows * kDepth; ++i) x[i] = static_cast<float>(i * 101 % 256 - 128);
  const Linear linear{kDepth, kColumns, 1, 128, false, weights, scales, offsets, nullptr};
  const std::unique_ptr<char[]> scratch(new char[ScratchBytes(linear, kRows)]);
  for (const int64_t rows : {kRows, kLeastTiledRows + 1}) {  // two tiles and one and a part; and a part of one alone
    MultiplyBy(linear, x, rows, by_tiles, scratch.get(), alone, true);
    MultiplyBy(linear, x, rows, by_registers, scratch.get(), alone, false);
    if (std::memcmp(by_tiles, by_registers, rows * kColumns * sizeof(float)) != 0) return false;
  }
  return true;
}

}  // namespace

bool IsSupported() {
  return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512vnni");
}

size_t ScratchBytes(const Linear& linear, int64_t rows) {
  return static_cast<size_t>(rows * (Stride(linear) + static_cast<int64_t>(sizeof(float))));
}

bool HasTiles() {
  static const bool has_tiles = MayUseTiles() && TilesAgree();
  return has_tiles;
}

void Multiply(const Linear& linear, const float* x, int64_t rows, float* y, void* scratch, const Threads& threads) {
  const bool is_tiled = rows >= kLeastTiledRows && linear.Groups() % kTileGroups == 0 && HasTiles();
  MultiplyBy(linear, x, rows, y, scratch, threads, is_tiled);
}

}  // namespace trifold

#else  // another processor or compiler: the library is built, and says that it can do nothing

namespace trifold {

bool IsSupported() { return false; }
bool HasTiles() { return false; }
size_t ScratchBytes(const Linear&, int64_t) { return 0; }
void Multiply(const Linear&, const float*, int64_t, float*, void*, const Threads&) {}

}  // namespace trifold

#endif
