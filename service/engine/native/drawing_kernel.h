// Draws a token by its weight, and again among the likelier ones while it is outside of the smallest set that reaches
// top-p (the pivots of "Sorting-Free GPU Kernels for LLM Sampling", FlashInfer 2025).
//
// It is compiled for each kind of registers, whose header comes before it, and `attention_parts.h`.
//
// A row is a table of `kLines` lines, whose last may be shorter: a column is drawn by the sum of its weights, and one of
// its tokens by their own. Sums come in the order in which `columns.py` has them.

#pragma once

#include <algorithm>
#include <cmath>
#include <memory>

#include "attention_parts.h"
#include "drawing.h"

namespace trifold {
namespace {
namespace drawing {

constexpr int64_t kLines = 64;
constexpr int64_t kTaskTokens = 16 * 1024;  // which a thread takes at a time, at least: about 5 µs
constexpr int64_t kTooFew = 4 * kTaskTokens;  // they are weighed before another thread is woken

// What a thread keeps of a row; its memory stays for the next.
class Weights {
 public:
  static Weights& Of(int64_t vocab_size) {
    thread_local Weights weights;
    if (vocab_size > weights.capacity_) weights.Grow(vocab_size);
    return weights;
  }

  float *of_tokens, *of_columns;

 private:
  void Grow(int64_t vocab_size) {
    memory_.reset(new float[vocab_size + vocab_size / kLines + 1]);
    capacity_ = vocab_size;
    of_tokens = memory_.get();
    of_columns = of_tokens + vocab_size;
  }

  std::unique_ptr<float[]> memory_;
  int64_t capacity_ = 0;
};

SIMD float GreatestOf(const float* numbers, int64_t count) {
  constexpr int kParts = 4;  // a maximum waits for the one before it
  Floats greatest[kParts];
  for (int part = 0; part < kParts; ++part) greatest[part] = All(kNothing);
  int64_t i = 0;
  for (; i + kParts * kLanes <= count; i += kParts * kLanes)
#pragma GCC unroll 4
    for (int part = 0; part < kParts; ++part)
      greatest[part] = Max(greatest[part], Load(numbers + i + part * kLanes));
  for (; i < count; i += kLanes) {
    const Lanes lanes = LanesBetween(0, count - i);
    greatest[0] = Max(greatest[0], Select(lanes, Load(lanes, numbers + i), All(kNothing)));
  }
  return Greatest(Max(Max(greatest[0], greatest[1]), Max(greatest[2], greatest[3])));
}

// Writes e^((logit − greatest) · factor) of every token.
SIMD void Weigh(const float* logits, int64_t count, float greatest, float factor, float* weights) {
  const Floats most = All(greatest), times = All(factor);
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    Store(weights + i, Exp(Multiply(Subtract(Load(logits + i), most), times)));
  if (i == count) return;
  const Lanes lanes = LanesBetween(0, count - i);
  const Floats rest = Select(lanes, Load(lanes, logits + i), most);
  Store(lanes, weights + i, Exp(Multiply(Subtract(rest, most), times)));
}

SIMD void SumColumns(const float* weights, int64_t count, int64_t width, float* sums) {
  std::copy_n(weights, width, sums);
  for (int64_t start = width; start < count; start += width) {
    const int64_t in_line = std::min(width, count - start);
    const float* line = weights + start;
    for (int64_t column = 0; column < in_line; ++column) sums[column] += line[column];
  }
}

SIMD void KeepFrom(float least, int64_t count, float* weights) {
  for (int64_t i = 0; i < count; ++i) weights[i] = weights[i] >= least ? weights[i] : 0;
}

// Keeps the tokens that are likelier than this one, ties by id.
SIMD void KeepLikelier(const float* logits, int64_t count, int64_t token, float* weights) {
  const float own = logits[token];
  for (int64_t i = 0; i < token; ++i) weights[i] = logits[i] >= own ? weights[i] : 0;
  for (int64_t i = token; i < count; ++i) weights[i] = logits[i] > own ? weights[i] : 0;
}

double TotalOf(const float* numbers, int64_t count, int64_t stride) {
  double total = 0;
  for (int64_t i = 0; i < count; i += stride) total += numbers[i];
  return total;
}

// Where the cumulative numbers pass a chance of their total. No place that has nothing is returned.
int64_t PlaceOf(double chance, const float* numbers, int64_t count, int64_t stride) {
  const double total = TotalOf(numbers, count, stride);
  const double target = std::min(chance * total, std::nextafter(total, 0.0));  // a product may be rounded up to it
  double passed = 0;
  for (int64_t i = 0; i < count; i += stride) {
    passed += numbers[i];
    if (passed > target) return i;
  }
  return (count - 1) / stride * stride;  // of what is no number
}

int64_t TokenOf(const Draw& draw, int64_t row) {
  const int64_t count = draw.vocab_size, width = (count + kLines - 1) / kLines;
  const float* logits = draw.logits + row * count;
  Weights& held = Weights::Of(count);
  float *weights = held.of_tokens, *sums = held.of_columns;
  Weigh(logits, count, GreatestOf(logits, count), draw.factors[row], weights);
  SumColumns(weights, count, width, sums);
  const double total = TotalOf(sums, width, 1);
  if (!std::isfinite(total)) return kNoNumbers;
  if (draw.min_p[row] > 0) {
    KeepFrom(draw.min_p[row], count, weights);
    SumColumns(weights, count, width, sums);
  }
  for (int64_t round = 0; round < draw.rounds; ++round) {
    const double* chances = draw.chances + (row * draw.rounds + round) * 2;
    const int64_t column = PlaceOf(chances[0], sums, width, 1);
    const int64_t token = column + PlaceOf(chances[1], weights + column, count - column, width);
    if (draw.top_p[row] >= 1) return token;
    KeepLikelier(logits, count, token, weights);
    SumColumns(weights, count, width, sums);
    if (TotalOf(sums, width, 1) < draw.top_p[row] * total) return token;
  }
  return kUndecided;
}

struct Work {
  const Draw& draw;
  int64_t rows_a_task;
};

void DrawTask(void* data, size_t task) {
  const Work& work = *static_cast<const Work*>(data);
  const int64_t first = static_cast<int64_t>(task) * work.rows_a_task;
  for (int64_t row = first; row < std::min(work.draw.rows, first + work.rows_a_task); ++row)
    work.draw.ids[row] = TokenOf(work.draw, row);
}

void DrawAll(const Draw& draw, const Threads& threads) {
  const bool is_little = draw.rows * draw.vocab_size < kTooFew;
  Work work{draw, is_little ? draw.rows : (kTaskTokens + draw.vocab_size - 1) / draw.vocab_size};
  threads.ForEach(static_cast<size_t>((draw.rows + work.rows_a_task - 1) / work.rows_a_task), DrawTask, &work);
}

}  // namespace drawing
}  // namespace
}  // namespace trifold
