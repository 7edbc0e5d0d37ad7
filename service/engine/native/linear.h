// The product of rows of floats with a constant matrix of 8-bit integers.

#pragma once

#include <cstddef>
#include <cstdint>

#include "threads.h"

namespace trifold {

// Columns of a matrix lie in panels of so many, and in a panel so many numbers of a column side by side: what one
// instruction sums up. `graph.py` lays matrices out so.
constexpr int64_t kPanelColumns = 32;
constexpr int64_t kGroup = 4;
constexpr int64_t kPanelStride = kPanelColumns * kGroup;  // bytes of a panel's group

// y = (q · W) · scales + bias, with q = clamp(round(x / step), −zero_point, 255 − zero_point), and W (depth, columns) of
// 8-bit integers. By rows: y = (q · W) · scales · max|x| + bias, with x / max|x| in the place of x.
struct Linear {
  int64_t depth, columns;
  float step;          // of the rows' 8-bit numbers
  int32_t zero_point;  // what stands for 0 among them: they are unsigned
  bool by_rows;        // whether a row is divided by its largest number first, by which its answer is multiplied

  const int8_t* weights;       // (panels, groups, kPanelColumns, kGroup), filled up with zeros
  const float* scales;         // (panels · kPanelColumns): step · the column's
  const int32_t* column_sums;  // (panels · kPanelColumns), of W
  const float* bias;           // (columns), or null

  int64_t Panels() const { return (columns + kPanelColumns - 1) / kPanelColumns; }
  int64_t Groups() const { return (depth + kGroup - 1) / kGroup; }
};

}  // namespace trifold
