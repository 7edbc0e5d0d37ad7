// The product of rows of floats with a constant matrix of 8-bit integers.

#pragma once

#include <cstddef>
#include <cstdint>

#include "threads.h"

namespace trifold {

// Columns of a matrix lie in panels of so many, and in a panel so many numbers of a column side by side: what two
// registers hold, and what one instruction sums up. `graph.py` lays matrices out so.
constexpr int64_t kPanelColumns = 32;
constexpr int64_t kGroup = 4;

// y = (q · W) · scales + bias, with q = clamp(round(x / step), −zero_point, 255 − zero_point), and W (depth, columns) of
// 8-bit integers. By rows: y = (q · W) · scales · max|x| + bias, with x / max|x| in the place of x.
struct Linear {
  int64_t depth, columns;
  float step;          // of the rows' 8-bit numbers
  int32_t zero_point;  // what stands for 0 among them: they are unsigned
  bool by_rows;        // whether a row is divided by its largest number first, by which its answer is multiplied

  const int8_t* weights;   // (panels, groups, kPanelColumns, kGroup), filled up with zeros
  const float* scales;     // (panels · kPanelColumns): step · the column's
  const int32_t* offsets;  // (panels · kPanelColumns): −zero_point · the column's sum
  const float* bias;       // (columns), or null

  int64_t Panels() const { return (columns + kPanelColumns - 1) / kPanelColumns; }
  int64_t Groups() const { return (depth + kGroup - 1) / kGroup; }
};

// Whether this processor has the instructions that our operators are made of.
bool IsSupported();

// Whether many rows are summed up by this processor's tiles.
bool HasTiles();

// How much memory `Multiply` needs beside inputs and outputs.
size_t ScratchBytes(const Linear& linear, int64_t rows);

// Writes y (rows, columns) for x (rows, depth), of which there is one at least, all finite. Throws nothing.
void Multiply(const Linear& linear, const float* x, int64_t rows, float* y, void* scratch, const Threads& threads);

}  // namespace trifold
