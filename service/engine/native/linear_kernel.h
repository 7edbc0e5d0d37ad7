// A product in three parts: rows are rounded to 8 bits, sums of integers are exact, and sums become floats again. Each
// does what the operators of ONNX Runtime do that stand for it otherwise, in their order, so that answers are the same
// to the last bit: QuantizeLinear and MatMulIntegerToFloat; by rows, Abs, ReduceMax and Div before, Mul and Add behind.
//
// With few rows the time is that of reading the matrix, so each thread reads panels that lie side by side, each once.
// With many it is that of multiplying, so sums stay in registers and rows in the cache.
//
// It is compiled for each kind of registers, whose header comes before it.

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "linear.h"

namespace trifold {
namespace {
namespace linear {

constexpr int64_t kBlockBytes = 256 * 1024;     // of rows that stay in a core's cache while panels go by
constexpr int64_t kTaskBytes = 48 * 1024;       // of a matrix, once for some rows: what a thread takes at a time
constexpr int64_t kLeastPanels = 2;             // whose answers lie side by side, and are written so
constexpr int64_t kAhead = 16 * 1024;           // bytes between what is read and what is asked for of memory
constexpr int64_t kRowsTaskNumbers = 8 * 1024;  // of rows to be rounded: what a thread takes at a time
constexpr int64_t kTooSmall = 128 * 1024;       // products of numbers that are done sooner than others are woken

constexpr int64_t RoundedUp(int64_t count, int64_t unit) { return (count + unit - 1) / unit * unit; }

struct Product;

// How a block of rows is multiplied with a few panels, and what a thread takes of it at a time.
struct Way {
  void (*multiply)(const Product&, int64_t first_row, int64_t last_row, int64_t first_panel, int64_t last_panel);
  int64_t rows_at_a_time, task_bytes;
};

// Rows in 8 bits, and what is to become of them.
struct Product {
  const Linear& linear;
  const Way& way;
  const float* x;
  Rounded* rounded;  // (rows, stride)
  float* largest;    // (rows), by rows
  float* y;
  int64_t rows, stride;
  int64_t panels_a_task, rows_a_task, tasks_a_block;
};

SIMD float Largest(const float* x, int64_t count) {
  Floats largest = All(0);
  for (int64_t i = 0; i < count; i += kLanes)
    largest = Max(largest, Absolute(Load(LanesBetween(0, count - i), x + i)));
  return Greatest(largest);
}

SIMD void RoundRow(const Product& product, int64_t row) {
  const Linear& linear = product.linear;
  const float* x = product.x + row * linear.depth;
  Rounded* rounded = product.rounded + row * product.stride;
  const Floats step = All(linear.step);
  const Floats least = All(static_cast<float>(-linear.zero_point));
  const Floats most = All(static_cast<float>(255 - linear.zero_point));
  const Integers zero_point = AllIntegers(linear.zero_point - kRoundedZero);
  Floats largest = All(1);
  if (linear.by_rows) largest = All(product.largest[row] = Largest(x, linear.depth));
  for (int64_t i = 0; i < linear.depth; i += kLanes) {  // what is behind its end meets weights that are zeros
    Floats value = Load(LanesBetween(0, linear.depth - i), x + i);
    if (linear.by_rows) value = Divide(value, largest);
    value = Divide(value, step);
    value = Min(Max(value, least), most);  // what is no number becomes the least
    StoreRounded(rounded + i, AddIntegers(ToIntegers(value), zero_point));
  }
}

// Sixteen columns side by side, and what makes answers of their sums.
struct Columns {
  int64_t place;
  Lanes lanes;  // that are columns, and no filling
  Floats scales, bias;

  INLINE Columns(const Linear& linear, int64_t place)
      : place(place), lanes(LanesBetween(0, linear.columns - place)) {
    scales = Load(linear.scales + place);
    bias = linear.bias ? Load(lanes, linear.bias + place) : All(0);
  }

  INLINE void Write(const Product& product, int64_t row, Integers sums) const {
    Floats y = Multiply(ToFloats(sums), scales);
    if (product.linear.by_rows) y = Multiply(y, All(product.largest[row]));
    if (product.linear.bias) y = Add(y, bias);
    Store(lanes, product.y + row * product.linear.columns + place, y);
  }
};

// Writes with what a panel's sums begin: what their rows' zero would add to them is taken off.
INLINE void Begin(const Linear& linear, int64_t column, int32_t* sums) {
  const Integers factor = AllIntegers(kRoundedZero - linear.zero_point);
  for (int64_t lane = 0; lane < kPanelColumns; lane += kLanes)
    StoreIntegers(sums + lane, MultiplyIntegers(LoadIntegers(linear.column_sums + column + lane), factor));
}

// Multiplies `Rows` rows with one panel.
template <int Rows>
SIMD void MultiplyRows(const Product& product, int64_t row, int64_t panel, int64_t ahead) {
  const Linear& linear = product.linear;
  const int64_t groups = linear.Groups(), column = panel * kPanelColumns;
  alignas(64) int32_t sums[Rows][kPanelColumns];
#pragma GCC unroll 12
  for (int i = 0; i < Rows; ++i) Begin(linear, column, sums[i]);
  SumUp<Rows>(product.rounded + row * product.stride, product.stride, linear.weights + panel * groups * kPanelStride,
              groups, ahead, sums);
#pragma GCC unroll 2
  for (int64_t lane = 0; lane < kPanelColumns; lane += kLanes) {
    const Columns columns(linear, column + lane);
#pragma GCC unroll 12
    for (int i = 0; i < Rows; ++i) columns.Write(product, row + i, LoadIntegers(sums[i] + lane));
  }
}

using AnyRows = void (*)(const Product&, int64_t row, int64_t panel, int64_t ahead);

template <size_t... Rows>
AnyRows RowsFunction(std::index_sequence<Rows...>, int64_t rows) {
  static constexpr AnyRows kFunctions[] = {MultiplyRows<Rows + 1>...};
  return kFunctions[rows - 1];
}

void MultiplyByRegisters(const Product& product, int64_t first_row, int64_t last_row, int64_t first_panel,
                         int64_t last_panel) {
  int64_t count;
  for (int64_t row = first_row; row < last_row; row += count) {
    const int64_t left = last_row - row, ahead = row == first_row ? kAhead : 0;
    count = left >= 2 * kRegisterRows ? kRegisterRows : left > kRegisterRows ? (left + 1) / 2 : left;
    const AnyRows multiply = RowsFunction(std::make_index_sequence<kRegisterRows>(), count);
    for (int64_t panel = first_panel; panel < last_panel; ++panel) multiply(product, row, panel, ahead);
  }
}

constexpr Way kByRegisters{MultiplyByRegisters, kRegisterRows, kTaskBytes};

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
  const int64_t first_row = block * product.rows_a_task, first_panel = part * product.panels_a_task;
  const int64_t last_row = std::min(product.rows, first_row + product.rows_a_task);
  const int64_t last_panel = std::min(product.linear.Panels(), first_panel + product.panels_a_task);
  product.way.multiply(product, first_row, last_row, first_panel, last_panel);
}

// Rows lie a little further apart than they are long: at powers of two all would want the same places of the cache.
int64_t Stride(const Linear& linear) { return RoundedUp(linear.depth, 64) + 64; }

size_t ScratchBytes(const Linear& linear, int64_t rows) {
  return static_cast<size_t>(rows) * (Stride(linear) * sizeof(Rounded) + sizeof(float));
}

void MultiplyBy(const Way& way, const Linear& linear, const float* x, int64_t rows, float* y, void* scratch,
                const Threads& threads) {
  const int64_t stride = Stride(linear), row_bytes = stride * static_cast<int64_t>(sizeof(Rounded));
  Rounded* rounded = static_cast<Rounded*>(scratch);
  float* largest = reinterpret_cast<float*>(rounded + rows * stride);
  Product product{linear, way, x, rounded, largest, y, rows, stride, 0, 0, 0};
  const int64_t rounding = RowsToRound(linear);
  threads.ForEach(static_cast<size_t>((rows + rounding - 1) / rounding), RoundRows, &product);

  const int64_t blocks = (rows * row_bytes + kBlockBytes - 1) / kBlockBytes;
  product.rows_a_task = RoundedUp((rows + blocks - 1) / blocks, way.rows_at_a_time);
  const int64_t panel_bytes = linear.Groups() * kPanelStride * (product.rows_a_task / way.rows_at_a_time);
  const bool is_small = rows * linear.depth * linear.columns < kTooSmall;
  product.panels_a_task = is_small ? linear.Panels() : std::max<int64_t>(kLeastPanels, way.task_bytes / panel_bytes);
  product.tasks_a_block = (linear.Panels() + product.panels_a_task - 1) / product.panels_a_task;
  threads.ForEach(static_cast<size_t>(blocks * product.tasks_a_block), MultiplyBlock, &product);
}

void Multiply(const Linear& linear, const float* x, int64_t rows, float* y, void* scratch, const Threads& threads) {
  MultiplyBy(kByRegisters, linear, x, rows, y, scratch, threads);
}

}  // namespace linear
}  // namespace
}  // namespace trifold
