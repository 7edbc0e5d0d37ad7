// Attention head by head: a task takes one key and value head of a row and all queries that read it, or a few tokens'.
//
// With one new token the time is that of reading the cache, so each key and value is read once. Scores and weights are
// made for a stretch of tokens at a time, and what was summed up so far is scaled when a greater score comes (Milakov
// and Gimelshein, "Online normalizer calculation for softmax", 2018), so they stay in the core's nearest cache.
//
// Stretches and blocks begin at multiples of their length, and each query's sums go over its own tokens in ascending
// order. So what else is computed with it, and where its own computation began, does not change a bit.

#pragma once

#include <algorithm>
#include <cstring>

#include "attention.h"
#include "attention_parts.h"

namespace trifold {
namespace {
namespace cached {

constexpr int64_t kStretch = 512;          // tokens whose scores are held
constexpr int64_t kTileQueries = 16;       // that read a key from the nearest cache before the next is fetched
constexpr int64_t kAhead = 4 * 1024;       // bytes between what is read and what is asked for of memory

// Asks for what will be read kAhead bytes behind what is read now: of the same keys or values, which end somewhere, or
// of what is read next (null: nothing). Few processors look ahead over the end of a page by themselves.
INLINE void FetchAhead(const void* now, int64_t bytes, const void* end, const void* next) {
  const char* place = static_cast<const char*>(now) + kAhead;
  if (place >= end) {
    if (next == nullptr) return;
    place = static_cast<const char*>(next) + (place - static_cast<const char*>(end));
  }
  for (int64_t line = 0; line < bytes; line += 64) __builtin_prefetch(place + line);
}

// Writes the products of a query with sixteen keys.
template <typename Number>
INLINE void Score(const float* query, const Number* keys, int64_t width, float* scores) {
#pragma GCC unroll 4
  for (int first = 0; first < kLanes; first += kScoredTokens, keys += kScoredTokens * width) {
    Floats sums[kScoredTokens];
#pragma GCC unroll 16
    for (int token = 0; token < kScoredTokens; ++token) sums[token] = All(0);
    for (int64_t d = 0; d < width; d += kLanes) {
      const Floats part = Load(query + d);
#pragma GCC unroll 16
      for (int token = 0; token < kScoredTokens; ++token)
        sums[token] = MultiplyAdd(part, Load(keys + token * width + d), sums[token]);
    }
    StoreSums(scores + first, sums);
  }
}

// The queries that a task takes at a time, and what is computed of them.
struct Tile {
  Query queries[kTileQueries];
  int64_t count = 0;
  alignas(64) float numbers[kTileQueries][kGreatestWidth];  // the queries, turned and scaled
  alignas(64) float sums[kTileQueries][kGreatestWidth];     // of values so far
  alignas(64) float lanes[kTileQueries][kLanes];            // of weights so far
  alignas(64) float scores[kTileQueries][kStretch];         // of a stretch; then weights
  alignas(64) float block[kLanes * kGreatestWidth];         // keys
};

struct Work {
  const Attention& attention;
  const AttentionRun& run;
  int64_t tile_tokens, tiles;       // of a segment
  int64_t units, units_a_task;  // of a segment's head and tile

  int64_t Offset(int64_t slot, int64_t kv_head) const {
    return (slot * attention.kv_heads + kv_head) * run.capacity * attention.width;
  }
};

// Puts a head's new keys and values behind those that the cache has.
template <typename Number>
SIMD void Append(const Work& work, const Segment& segment, int64_t kv_head) {
  const AttentionRun& run = work.run;
  const int64_t width = work.attention.width;
  const int64_t offset = work.Offset(segment.slot, kv_head) + segment.before * width;
  Number* keys = static_cast<Number*>(run.cache.keys) + offset;
  Number* values = static_cast<Number*>(run.cache.values) + offset;
  alignas(64) float key[kGreatestWidth];
  for (int64_t token = 0; token < segment.tokens; ++token, keys += width, values += width) {
    const int64_t place = segment.place + token;
    std::memcpy(key, run.keys.data + place * run.keys.stride + kv_head * width, width * sizeof(float));
    Turn(run.rotary, segment.before + token, key);
    const float* value = run.values.data + place * run.values.stride + kv_head * width;
    for (int64_t d = 0; d < width; d += kLanes) {
      Store(keys + d, Load(key + d));
      Store(values + d, Load(value + d));
    }
  }
}

// Takes the queries of some tokens that share a head; what is padding has its answer at once.
SIMD void Take(const Work& work, const Segment& segment, int64_t kv_head, int64_t first, int64_t last, Tile* tile) {
  const Attention& attention = work.attention;
  const AttentionRun& run = work.run;
  const int64_t group = attention.heads / attention.kv_heads, width = attention.width;
  for (int64_t token = first; token < last; ++token) {
    const bool sees_all = !run.HasNewKeys(attention);
    const int64_t place = segment.place + token, position = segment.before + (sees_all ? 0 : token);
    const int64_t row = place / run.tokens;
    for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
      float* output = run.output + (place * attention.heads + head) * width;
      if (position > run.last[row]) {
        std::memset(output, 0, width * sizeof(float));
        continue;
      }
      Query& query = tile->queries[tile->count];
      const float slope = run.bias.slopes == nullptr ? 0 : run.bias.slopes[head];
      query = {0, position + 1, nullptr, output, kNothing, slope, position};
      if (attention.window > 0) query.begin = std::max<int64_t>(0, query.end - attention.window);
      if (run.bias.data != nullptr)
        query.bias = run.bias.data + row * run.bias.row + head * run.bias.head + place % run.tokens * run.bias.token;
      float* numbers = tile->numbers[tile->count];
      std::memcpy(numbers, run.queries.data + place * run.queries.stride + head * width, width * sizeof(float));
      Turn(run.rotary, position, numbers);
      for (int64_t d = 0; d < width; ++d) numbers[d] *= attention.scale;
      std::memset(tile->sums[tile->count], 0, width * sizeof(float));
      std::memset(tile->lanes[tile->count], 0, sizeof tile->lanes[0]);
      ++tile->count;
    }
  }
}

// Fills the scores of tokens begin … end−1, of a stretch that begins at `stretch`.
template <typename Number>
SIMD void ScoreStretch(const Number* keys, int64_t width, int64_t stretch, int64_t begin, int64_t end,
                       const Number* next, Tile* tile) {
  for (int64_t token = begin; token < end; token += kLanes) {
    const Number* block = keys + token * width;
    const int64_t count = std::min(kLanes, end - token);
    FetchAhead(block, count * width * sizeof(Number), keys + end * width, next);
    const bool is_whole = count == kLanes;
    const bool is_copied = !is_whole || (sizeof(Number) < sizeof(float) && tile->count > 1);
    if (is_copied) {
      for (int64_t i = 0; i < count * width; i += kLanes) Store(tile->block + i, Load(block + i));
      std::memset(tile->block + count * width, 0, (kLanes - count) * width * sizeof(float));
    }
    for (int64_t query = 0; query < tile->count; ++query) {
      float* scores = tile->scores[query] + token - stretch;
      if (is_copied) {
        Score(tile->numbers[query], tile->block, width, scores);
      } else {
        Score(tile->numbers[query], block, width, scores);
      }
    }
  }
}

// Adds to the sums of all queries the values of tokens begin … end−1 by their weights.
template <typename Number>
SIMD void WeighStretch(const Number* values, int64_t width, int64_t stretch, int64_t begin, int64_t end,
                       const Number* next, Tile* tile) {
  for (int64_t token = begin; token < end; token += kLanes) {
    const Number* block = values + token * width;
    const int64_t count = std::min(kLanes, end - token);
    FetchAhead(block, count * width * sizeof(Number), values + end * width, next);
    for (int64_t query = 0; query < tile->count; query += kMostQueries)
      WeighAll(block, width, tile->scores[query] + token - stretch, kStretch, count, tile->sums[query], kGreatestWidth,
               std::min<int64_t>(kMostQueries, tile->count - query));
  }
}

// `next`: the keys that are read behind this tile's.
template <typename Number>
SIMD void AttendTile(const Work& work, const Segment& segment, int64_t kv_head, int64_t first_token,
                     int64_t last_token, const Number* next) {
  Tile tile;
  Take(work, segment, kv_head, first_token, last_token, &tile);
  if (tile.count == 0) return;
  const int64_t width = work.attention.width, offset = work.Offset(segment.slot, kv_head);
  const Number* keys = static_cast<const Number*>(work.run.cache.keys) + offset;
  const Number* values = static_cast<const Number*>(work.run.cache.values) + offset;
  // Queries are in the order of their tokens, so the first sees the first of all, and the last the last.
  const int64_t from = tile.queries[0].begin / kLanes * kLanes, to = tile.queries[tile.count - 1].end;
  for (int64_t stretch = from / kStretch * kStretch; stretch < to; stretch += kStretch) {
    const int64_t begin = std::max(stretch, from), end = std::min(stretch + kStretch, to);
    ScoreStretch(keys, width, stretch, begin, end, values + begin * width, &tile);
    for (int64_t query = 0; query < tile.count; ++query)
      WeightsOf(begin, end, tile.scores[query] + begin - stretch, width, tile.sums[query], tile.lanes[query],
                &tile.queries[query]);
    WeighStretch(values, width, stretch, begin, end, end < to ? keys + end * width : next, &tile);
  }
  for (int64_t query = 0; query < tile.count; ++query) {
    const Floats sum = All(Sum(Load(tile.lanes[query])));
    for (int64_t d = 0; d < width; d += kLanes)
      Store(tile.queries[query].output + d, Divide(Load(tile.sums[query] + d), sum));
  }
}

template <typename Number>
void AppendTask(void* data, size_t task) {
  const Work& work = *static_cast<const Work*>(data);
  const int64_t unit = static_cast<int64_t>(task), kv_heads = work.attention.kv_heads;
  Append<Number>(work, work.run.At(unit / kv_heads), unit % kv_heads);
}

template <typename Number>
void AttendTask(void* data, size_t task) {
  const Work& work = *static_cast<const Work*>(data);
  const int64_t first = static_cast<int64_t>(task) * work.units_a_task;
  const int64_t last = std::min(work.units, first + work.units_a_task);
  for (int64_t unit = first; unit < last; ++unit) {
    const int64_t tile = unit % work.tiles, head = unit / work.tiles;
    const Segment segment = work.run.At(head / work.attention.kv_heads);
    const int64_t kv_head = head % work.attention.kv_heads;
    if (work.run.LongestSegment() == 1 && work.run.HasNewKeys(work.attention))
      Append<Number>(work, segment, kv_head);
    const int64_t token = tile * work.tile_tokens;
    const Number* keys = static_cast<const Number*>(work.run.cache.keys);
    const Number* next = unit + 1 < last ? keys + work.Offset(segment.slot, kv_head + 1) : nullptr;
    AttendTile<Number>(work, segment, kv_head, token, std::min(segment.tokens, token + work.tile_tokens), next);
  }
}

template <typename Number>
void AttendAll(Work* work, const Threads& threads) {
  if (work->run.LongestSegment() > 1 && work->run.HasNewKeys(work->attention))
    threads.ForEach(static_cast<size_t>(work->run.Segments() * work->attention.kv_heads), AppendTask<Number>, work);
  const int64_t tasks = (work->units + work->units_a_task - 1) / work->units_a_task;
  threads.ForEach(static_cast<size_t>(tasks), AttendTask<Number>, work);
}

void Attend(const Attention& attention, const AttentionRun& run, const Threads& threads) {
  const int64_t group = attention.heads / attention.kv_heads;
  int64_t seen = 0;
  for (int64_t row = 0; row < run.rows; ++row) seen += run.last[row] + 1;
  Work work{attention, run, std::max<int64_t>(1, kTileQueries / group), 0, 0, 0};
  const int64_t longest = run.LongestSegment();
  work.tiles = (longest + work.tile_tokens - 1) / work.tile_tokens;
  work.units = run.Segments() * attention.kv_heads * work.tiles;
  const int64_t length = std::max<int64_t>(1, seen / run.rows);
  const int64_t numbers = length * attention.width * group * std::min(longest, work.tile_tokens);
  work.units_a_task = UnitsATask(work.units, numbers);
  if (run.cache.is_half) {
    AttendAll<uint16_t>(&work, threads);
  } else {
    AttendAll<float>(&work, threads);
  }
}

}  // namespace cached
}  // namespace
}  // namespace trifold
