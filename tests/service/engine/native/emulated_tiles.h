// The tiles of `tiles.h` in plain code, and strict: what the processor would refuse ends the process.

#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace trifold {

constexpr int64_t kTileRows = 16;
constexpr int64_t kTileBytes = 64;
constexpr int kTiles = 8;

struct TileShapes {
  int64_t rows[kTiles] = {}, bytes[kTiles] = {};

  void Set(int tile, int64_t row_count, int64_t byte_count) {
    rows[tile] = row_count;
    bytes[tile] = byte_count;
  }
};

struct Tiles {
  TileShapes shapes;
  bool are_set = false;
  uint8_t numbers[kTiles][kTileRows][kTileBytes];
};

inline thread_local Tiles tiles;

inline void Require(bool condition) {
  if (!condition) std::abort();
}

inline bool MayUseTiles() { return true; }

inline void SetTiles(const TileShapes& shapes) {
  for (int tile = 0; tile < kTiles; ++tile) {
    Require(shapes.rows[tile] >= 0 && shapes.rows[tile] <= kTileRows);
    Require(shapes.bytes[tile] >= 0 && shapes.bytes[tile] <= kTileBytes);
  }
  tiles.shapes = shapes;
  tiles.are_set = true;
  std::memset(tiles.numbers, 0, sizeof tiles.numbers);
}

inline void ReleaseTiles() {
  Require(tiles.are_set);
  tiles.are_set = false;
}

// How many rows a tile has, which must have some.
inline int64_t RowsOf(int tile) {
  Require(tiles.are_set && tiles.shapes.rows[tile] > 0 && tiles.shapes.bytes[tile] > 0);
  return tiles.shapes.rows[tile];
}

template <int Tile>
void LoadTile(const void* from, int64_t stride) {
  for (int64_t row = 0; row < RowsOf(Tile); ++row)
    std::memcpy(tiles.numbers[Tile][row], static_cast<const char*>(from) + row * stride, tiles.shapes.bytes[Tile]);
}

template <int Tile>
void StoreTile(void* to, int64_t stride) {
  for (int64_t row = 0; row < RowsOf(Tile); ++row)
    std::memcpy(static_cast<char*>(to) + row * stride, tiles.numbers[Tile][row], tiles.shapes.bytes[Tile]);
}

template <int Sums, int Rows, int Columns>
void AddTileProducts() {
  const TileShapes& shapes = tiles.shapes;
  Require(RowsOf(Sums) == RowsOf(Rows) && shapes.bytes[Sums] == shapes.bytes[Columns]);
  Require(shapes.bytes[Rows] == 4 * RowsOf(Columns) && Sums != Rows && Sums != Columns && Rows != Columns);
  for (int64_t row = 0; row < shapes.rows[Sums]; ++row)
    for (int64_t column = 0; column < shapes.bytes[Sums] / 4; ++column) {
      int32_t sum;
      std::memcpy(&sum, tiles.numbers[Sums][row] + 4 * column, sizeof sum);
      for (int64_t i = 0; i < shapes.bytes[Rows]; ++i)
        sum += tiles.numbers[Rows][row][i] * static_cast<int8_t>(tiles.numbers[Columns][i / 4][4 * column + i % 4]);
      std::memcpy(tiles.numbers[Sums][row] + 4 * column, &sum, sizeof sum);
    }
}

}  // namespace trifold
