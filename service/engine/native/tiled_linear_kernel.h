// Products by tiles, where the processor has them (AMX): they sum up many rows in the place of registers. A panel's group
// is one row of two tiles, so matrices lie as they need them, and as sums are exact integers, answers are the same with
// them and without.

#pragma once

#include <memory>

#include "linear_kernel.h"

#ifndef TRIFOLD_TILES  // tests have others, of plain code, for processors without
#define TRIFOLD_TILES "tiles.h"
#endif
#include TRIFOLD_TILES

namespace trifold {
namespace {
namespace linear {

constexpr int64_t kTilePairRows = 2 * kTileRows;      // their sums fill 4 of 8 tiles
constexpr int64_t kTileGroups = kTileBytes / kGroup;  // of a row that one tile takes
constexpr int64_t kLeastTiledRows = 8;                // with fewer the time is that of reading the matrix
constexpr int64_t kTiledTaskBytes = 96 * 1024;        // tiles take less time

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
SIMD void MultiplyTiles(const Product& product, int64_t row, int64_t count, int64_t panel, int64_t ahead) {
  const Linear& linear = product.linear;
  const int64_t groups = linear.Groups(), column = panel * kPanelColumns;
  const uint8_t* rounded = product.rounded + row * product.stride;
  const uint8_t* others = rounded + kTileRows * product.stride;
  const int8_t* weights = linear.weights + panel * groups * kPanelStride;
  const bool has_others = count > kTileRows;
  alignas(64) int32_t start[kPanelColumns];
  Begin(linear, column, start);
  LoadTile<kFirstLeft>(start, 0);  // the same for each row
  LoadTile<kFirstRight>(start + kLanes, 0);
  if (has_others) {
    LoadTile<kOtherLeft>(start, 0);
    LoadTile<kOtherRight>(start + kLanes, 0);
  }
  for (int64_t group = 0; group < groups; group += kTileGroups, weights += kTileGroups * kPanelStride) {
    if (ahead > 0)
      for (int line = 0; line < kTileGroups * kPanelStride; line += 64) __builtin_prefetch(weights + ahead + line);
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
    for (int64_t i = 0; i < count; ++i) columns.Write(product, row + i, LoadIntegers(sums[half][i]));
  }
}

void MultiplyByTiles(const Product& product, int64_t first_row, int64_t last_row, int64_t first_panel,
                     int64_t last_panel) {
  int64_t count;
  for (int64_t row = first_row; row < last_row; row += count) {
    count = std::min(last_row - row, kTilePairRows);
    if (row == first_row || count < kTilePairRows) LayOut(count);
    for (int64_t panel = first_panel; panel < last_panel; ++panel)
      MultiplyTiles(product, row, count, panel, row == first_row ? kAhead : 0);
  }
  ReleaseTiles();
}

constexpr Way kByTiles{MultiplyByTiles, kTilePairRows, kTiledTaskBytes};

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
  int32_t column_sums[kColumns];
  for (int64_t i = 0; i < kDepth * kColumns; ++i) weights[i] = static_cast<int8_t>(i * 37 % 255 - 127);
  std::fill_n(scales, kColumns, 1.0f);
  for (int64_t i = 0; i < kColumns; ++i) column_sums[i] = static_cast<int32_t>(8 * i - 70);
  for (int64_t i = 0; i < kRows * kDepth; ++i) x[i] = static_cast<float>(i * 101 % 256 - 128);
  const Linear linear{kDepth, kColumns, 1, 128, false, weights, scales, column_sums, nullptr};
  const std::unique_ptr<char[]> scratch(new char[ScratchBytes(linear, kRows)]);
  for (const int64_t rows : {kRows, kLeastTiledRows + 1}) {  // two tiles and one and a part; and a part of one alone
    MultiplyBy(kByTiles, linear, x, rows, by_tiles, scratch.get(), alone);
    MultiplyBy(kByRegisters, linear, x, rows, by_registers, scratch.get(), alone);
    if (std::memcmp(by_tiles, by_registers, rows * kColumns * sizeof(float)) != 0) return false;
  }
  return true;
}

bool HasTiles() {
  static const bool has_tiles = MayUseTiles() && TilesAgree();
  return has_tiles;
}

// Multiplies many rows by tiles, and few, or rows of a length that fills no tile, by registers.
void MultiplyByEither(const Linear& linear, const float* x, int64_t rows, float* y, void* scratch,
                      const Threads& threads) {
  const bool is_tiled = rows >= kLeastTiledRows && linear.Groups() % kTileGroups == 0 && HasTiles();
  if (is_tiled) return MultiplyBy(kByTiles, linear, x, rows, y, scratch, threads);
  Multiply(linear, x, rows, y, scratch, threads);
}

}  // namespace linear
}  // namespace
}  // namespace trifold
