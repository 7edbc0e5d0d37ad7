// Tiles of Intel's processors (AMX): eight of up to 16 rows of 64 bytes, and products of two of them.

#pragma once

#include <cpuid.h>

#include <cstddef>
#include <cstdint>

#if defined(__linux__) && !defined(TRIFOLD_WITHOUT_TILES)  // for an assembler that knows none
#define TRIFOLD_HAS_TILES
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace trifold {

constexpr int64_t kTileRows = 16;
constexpr int64_t kTileBytes = 64;  // of a row

// How many rows of how many bytes each tile has; none unless set. As the instruction reads it (palette 1).
struct TileShapes {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t bytes[16] = {};
  uint8_t rows[16] = {};

  void Set(int tile, int64_t row_count, int64_t byte_count) {
    rows[tile] = static_cast<uint8_t>(row_count);
    bytes[tile] = static_cast<uint16_t>(row_count > 0 ? byte_count : 0);
  }
};
static_assert(sizeof(TileShapes) == 64, "the instruction reads 64 bytes");

// Whether the processor has tiles of 8-bit integers, and Linux lets this process use them; asks it to.
inline bool MayUseTiles() {
#ifdef TRIFOLD_HAS_TILES
  constexpr unsigned kTiles = 1u << 24, kIntegers = 1u << 25;      // in EDX of leaf 7
  constexpr long kAskForPermission = 0x1023, kTileNumbers = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  unsigned a, b, c, d;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & kTiles) == 0 || (d & kIntegers) == 0) return false;
  return syscall(SYS_arch_prctl, kAskForPermission, kTileNumbers) == 0;
#else
  return false;
#endif
}

// What follows is written in assembly, as compilers older than GCC 11 know no tiles.
#ifdef TRIFOLD_HAS_TILES

// Gives this thread's tiles their shapes.
inline void SetTiles(const TileShapes& shapes) { __asm__ volatile("ldtilecfg %0" : : "m"(shapes)); }

// Gives them back: a thread that has tiles takes longer to be exchanged for another.
inline void ReleaseTiles() { __asm__ volatile("tilerelease"); }

// Reads a tile's rows, `stride` bytes from one to the next.
template <int Tile>
inline void LoadTile(const void* from, int64_t stride) {
  __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(stride), "i"(Tile) : "memory");
}

template <int Tile>
inline void StoreTile(void* to, int64_t stride) {
  __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(stride), "i"(Tile) : "memory");
}

// Adds to 32-bit sums the products of unsigned rows with signed columns, four numbers of each side by side.
template <int Sums, int Rows, int Columns>
inline void AddTileProducts() {
  __asm__ volatile("tdpbusd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(Sums), "i"(Rows), "i"(Columns));
}

#else  // never called

inline void SetTiles(const TileShapes&) {}
inline void ReleaseTiles() {}
template <int Tile>
inline void LoadTile(const void*, int64_t) {}
template <int Tile>
inline void StoreTile(void*, int64_t) {}
template <int Sums, int Rows, int Columns>
inline void AddTileProducts() {}

#endif

}  // namespace trifold
