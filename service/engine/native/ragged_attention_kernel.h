// Attention of rows to themselves: a task takes some queries of a row that read one key and value head.
//
// There are many queries for each key, so keys are turned over once, sixteen side by side: one instruction then adds to
// the scores of a query and sixteen keys, and a few queries share what is loaded. Heads of any width are filled up with
// zeros to whole registers. Each query's sums go over its own tokens in ascending order, in stretches that begin at
// multiples of their length, so what else is computed with it does not change a bit.

#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "attention.h"
#include "attention_parts.h"

namespace trifold {
namespace {
namespace ragged {

constexpr int64_t kStretch = 128;      // tokens whose keys and values are held
constexpr int64_t kTileQueries = 64;   // that read them while they are held
constexpr int kMostBlocks = kMostParts;  // of sixteen keys whose scores are computed at a time

// What a task keeps of a tile of queries and of a stretch of tokens, for heads of `width` numbers.
class Held {
 public:
  // Returns this thread's, whose memory stays for its next task.
  static Held& Of(int64_t width) {
    thread_local Held held;
    if (width > held.width_) held.Grow(width);
    return held;
  }

  float *keys, *values;    // (kStretch / 16, width, 16), (kStretch, width)
  float *queries, *sums;   // (kTileQueries, width): queries turned and scaled, and what they see so far
  float* block;            // (16, width): keys before they are turned over
  float *scores, *lanes;   // (kMostQueries, kStretch): scores, then weights; (kTileQueries, 16): sums of weights so far
  Query tile[kTileQueries];

 private:
  void Grow(int64_t width) {
    const int64_t of_width = 2 * kStretch + 2 * kTileQueries + kLanes;
    const int64_t numbers = of_width * width + kMostQueries * kStretch + kTileQueries * kLanes;
    memory_.reset(new float[numbers + kLanes]);
    width_ = width;
    const size_t place = reinterpret_cast<size_t>(memory_.get());
    float* next = memory_.get() + (64 - place % 64) % 64 / sizeof(float);
    for (float** part : {&keys, &values}) *part = std::exchange(next, next + kStretch * width);
    for (float** part : {&queries, &sums}) *part = std::exchange(next, next + kTileQueries * width);
    block = std::exchange(next, next + kLanes * width);
    scores = std::exchange(next, next + kMostQueries * kStretch);
    lanes = next;
  }

  std::unique_ptr<float[]> memory_;
  int64_t width_ = 0;
};

struct Work {
  const Attention& attention;
  const AttentionRun& run;
  int64_t width;  // of a head, filled up
  int64_t group;  // of query heads that share a key head
  int64_t tiles, units, units_a_task;

  // How many queries read one key head of a row.
  int64_t Queries() const { return run.tokens * group; }
};

// Copies a head, and fills it up. A token's next head lies behind it, and is asked for: tokens lie in pages of their own,
// over whose ends no processor looks ahead.
INLINE void Copy(const float* from, int64_t count, float* to, int64_t width) {
  for (int64_t d = 0; d < width; d += kLanes) {
    __builtin_prefetch(from + count + d);
    Store(to + d, Load(LanesBetween(0, count - d), from + d));
  }
}

// Holds the keys and values of a row's tokens begin … end−1.
SIMD void Hold(const Work& work, int64_t row, int64_t kv_head, int64_t begin, int64_t end, Held* held) {
  const AttentionRun& run = work.run;
  const int64_t width = work.width, count = work.attention.width, head = kv_head * count;
  for (int64_t token = begin; token < end; ++token) {
    const int64_t place = row * run.tokens + token;
    Copy(run.values.data + place * run.values.stride + head, count, held->values + (token - begin) * width, width);
  }
  for (int64_t first = begin; first < end; first += kLanes) {
    for (int64_t token = first; token < first + kLanes; ++token) {
      float* key = held->block + (token - first) * width;
      const int64_t place = row * run.tokens + token;
      if (token < end) {
        Copy(run.keys.data + place * run.keys.stride + head, count, key, width);
        Turn(run.rotary, token, key);
      } else {
        std::memset(key, 0, width * sizeof(float));
      }
    }
    float* keys = held->keys + (first - begin) * width;
    for (int64_t d = 0; d < width; d += kLanes) {
      Floats numbers[kLanes];
#pragma GCC unroll 16
      for (int64_t i = 0; i < kLanes; ++i) numbers[i] = Load(held->block + i * width + d);
      TurnOver(numbers);
#pragma GCC unroll 16
      for (int64_t i = 0; i < kLanes; ++i) Store(keys + (d + i) * kLanes, numbers[i]);
    }
  }
}

// Takes queries first … last−1 of those that read a row's key head, which are in the order of their tokens; returns how
// many. What is padding has its answer at once.
SIMD int64_t Take(const Work& work, int64_t row, int64_t kv_head, int64_t first, int64_t last, Held* held) {
  const Attention& attention = work.attention;
  const AttentionRun& run = work.run;
  const int64_t count = attention.width, end = run.last[row] + 1;
  int64_t taken = 0;
  for (int64_t i = first; i < last; ++i) {
    const int64_t token = i / work.group, head = kv_head * work.group + i % work.group;
    const int64_t place = row * run.tokens + token;
    float* output = run.output + (place * attention.heads + head) * count;
    if (token >= end) {
      std::memset(output, 0, count * sizeof(float));
      continue;
    }
    Query& query = held->tile[taken];
    const float slope = run.bias.slopes == nullptr ? 0 : run.bias.slopes[head];
    query = {0, attention.is_causal ? token + 1 : end, nullptr, output, kNothing, slope, token};
    if (attention.window > 0) {
      const int64_t behind = attention.is_causal ? 0 : attention.window / 2;
      query.begin = std::max<int64_t>(0, token + 1 + behind - attention.window);
      query.end = std::min(query.end, token + 1 + behind);
    }
    if (run.bias.data != nullptr)
      query.bias = run.bias.data + row * run.bias.row + head * run.bias.head + token * run.bias.token;
    float* numbers = held->queries + taken * work.width;
    Copy(run.queries.data + place * run.queries.stride + head * count, count, numbers, work.width);
    Turn(run.rotary, token, numbers);
    for (int64_t d = 0; d < count; ++d) numbers[d] *= attention.scale;
    ++taken;
  }
  std::memset(held->sums, 0, taken * work.width * sizeof(float));
  std::memset(held->lanes, 0, taken * kLanes * sizeof(float));
  return taken;
}

// Fills the scores of `Queries` queries and of `Blocks` blocks of keys, which are turned over.
template <int Queries, int Blocks>
SIMD void Score(const float* queries, const float* keys, int64_t width, float* scores) {
  Floats sums[Queries][Blocks];
#pragma GCC unroll 4
  for (int query = 0; query < Queries; ++query)
#pragma GCC unroll 4
    for (int block = 0; block < Blocks; ++block) sums[query][block] = All(0);
  for (int64_t d = 0; d < width; ++d) {
    Floats key[Blocks];
#pragma GCC unroll 4
    for (int block = 0; block < Blocks; ++block) key[block] = Load(keys + (block * width + d) * kLanes);
#pragma GCC unroll 4
    for (int query = 0; query < Queries; ++query) {
      const Floats number = All(queries[query * width + d]);
#pragma GCC unroll 4
      for (int block = 0; block < Blocks; ++block)
        sums[query][block] = MultiplyAdd(number, key[block], sums[query][block]);
    }
  }
#pragma GCC unroll 4
  for (int query = 0; query < Queries; ++query)
#pragma GCC unroll 4
    for (int block = 0; block < Blocks; ++block)
      Store(scores + query * kStretch + block * kLanes, sums[query][block]);
}

using AnyScore = void (*)(const float*, const float*, int64_t, float*);

// Returns `Score` for so many queries and blocks.
template <int... Places>
AnyScore ScoreOf(std::integer_sequence<int, Places...>, int64_t queries, int64_t blocks) {
  static constexpr AnyScore kFunctions[] = {Score<Places / kMostBlocks + 1, Places % kMostBlocks + 1>...};
  return kFunctions[(queries - 1) * kMostBlocks + blocks - 1];
}

// Lets up to `kMostQueries` queries, of which `place` is the first, see the stretch that is held.
SIMD void See(int64_t width, int64_t begin, int64_t end, int64_t place, int64_t queries, Held* held) {
  const int64_t blocks = (end - begin + kLanes - 1) / kLanes;
  for (int64_t block = 0; block < blocks; block += kMostBlocks) {
    const int64_t some = std::min<int64_t>(kMostBlocks, blocks - block);
    const auto score = ScoreOf(std::make_integer_sequence<int, kMostQueries * kMostBlocks>(), queries, some);
    score(held->queries + place * width, held->keys + block * kLanes * width, width, held->scores + block * kLanes);
  }
  for (int64_t i = 0; i < queries; ++i)
    WeightsOf(begin, end, held->scores + i * kStretch, width, held->sums + (place + i) * width,
              held->lanes + (place + i) * kLanes, &held->tile[place + i]);
  WeighAll(held->values, width, held->scores, kStretch, end - begin, held->sums + place * width, width, queries);
}

SIMD void AttendTile(const Work& work, int64_t row, int64_t kv_head, int64_t tile) {
  Held& held = Held::Of(work.width);
  const int64_t width = work.width, first = tile * kTileQueries;
  const int64_t count = Take(work, row, kv_head, first, std::min(work.Queries(), first + kTileQueries), &held);
  if (count == 0) return;
  const int64_t from = held.tile[0].begin, to = held.tile[count - 1].end;
  for (int64_t begin = from / kStretch * kStretch; begin < to; begin += kStretch) {
    const int64_t end = std::min(begin + kStretch, to);
    Hold(work, row, kv_head, begin, end, &held);
    for (int64_t place = 0; place < count; place += kMostQueries)
      See(width, begin, end, place, std::min<int64_t>(kMostQueries, count - place), &held);
  }
  for (int64_t i = 0; i < count; ++i) {
    const Floats sum = All(Sum(Load(held.lanes + i * kLanes)));
    for (int64_t d = 0; d < work.attention.width; d += kLanes)
      Store(LanesBetween(0, work.attention.width - d), held.tile[i].output + d,
            Divide(Load(held.sums + i * width + d), sum));
  }
}

void AttendTask(void* data, size_t task) {
  const Work& work = *static_cast<const Work*>(data);
  const int64_t first = static_cast<int64_t>(task) * work.units_a_task;
  for (int64_t unit = first; unit < std::min(work.units, first + work.units_a_task); ++unit) {
    const int64_t head = unit / work.tiles;
    AttendTile(work, head / work.attention.kv_heads, head % work.attention.kv_heads, unit % work.tiles);
  }
}

void Attend(const Attention& attention, const AttentionRun& run, const Threads& threads) {
  const int64_t width = (attention.width + kLanes - 1) / kLanes * kLanes;
  Work work{attention, run, width, attention.heads / attention.kv_heads, 0, 0, 0};
  work.tiles = (work.Queries() + kTileQueries - 1) / kTileQueries;
  work.units = run.rows * attention.kv_heads * work.tiles;
  int64_t seen = 0;
  for (int64_t row = 0; row < run.rows; ++row) seen += run.last[row] + 1;
  const int64_t length = std::max<int64_t>(1, seen / run.rows);
  const int64_t keys = attention.window > 0 ? std::min(length, attention.window + kTileQueries) : length;
  work.units_a_task = UnitsATask(work.units, keys * width * std::min(kTileQueries, length * work.group));
  threads.ForEach(static_cast<size_t>((work.units + work.units_a_task - 1) / work.units_a_task), AttendTask, &work);
}

}  // namespace ragged
}  // namespace
}  // namespace trifold
