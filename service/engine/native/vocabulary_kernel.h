// Passes over the logits of a vocabulary, without sorting it: draws, sums and the likeliest tokens.
//
// It is compiled for each kind of registers, whose header comes before it.
//
// A row is a table of `kLines` lines, whose last may be shorter, as in `columns.py`. A column is drawn by the sum of its
// weights, and one of its tokens by their own; within top-p again, among the likelier ones, while the token is outside of
// the smallest set that reaches it (the pivots of "Sorting-Free GPU Kernels for LLM Sampling", FlashInfer 2025). At least
// as many tokens as columns reach a column's maximum: fewer than these are found among those that reach the last of them.

#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "attention_parts.h"
#include "vocabulary.h"

namespace trifold {
namespace {
namespace vocabulary {

constexpr int64_t kLines = 64;
constexpr int64_t kTaskTokens = 16 * 1024;  // which a thread takes at a time, at least: about 5 µs
constexpr int64_t kTooFew = 4 * kTaskTokens;  // they are weighed before another thread is woken

struct Token {
  float logit;
  int64_t id;

  bool operator<(const Token& other) const {  // the likelier first
    return logit > other.logit || (logit == other.logit && id < other.id);
  }
};

// What a thread keeps of a row; its memory stays for the next.
class Held {
 public:
  static Held& Of(int64_t vocab_size) {
    thread_local Held held;
    if (static_cast<size_t>(vocab_size) > held.weights.size()) {
      held.weights.resize(vocab_size);
      held.of_columns.resize(WidthOf(vocab_size));
    }
    return held;
  }
  static int64_t WidthOf(int64_t vocab_size) { return (vocab_size + kLines - 1) / kLines; }

  std::vector<float> weights;     // of tokens, or numbers to be put in order
  std::vector<float> of_columns;  // sums or maxima
  std::vector<Token> tokens;      // that may be among the likeliest
};

// The greatest of those that are numbers.
SIMD float GreatestOf(const float* numbers, int64_t count) {
  constexpr int kParts = 4;  // a maximum waits for the one before it
  Floats greatest[kParts];
  for (int part = 0; part < kParts; ++part) greatest[part] = All(kNothing);
  int64_t i = 0;
  for (; i + kParts * kLanes <= count; i += kParts * kLanes)
#pragma GCC unroll 4
    for (int part = 0; part < kParts; ++part)
      greatest[part] = Max(Load(numbers + i + part * kLanes), greatest[part]);
  for (; i < count; i += kLanes) {
    const Lanes lanes = LanesBetween(0, count - i);
    greatest[0] = Max(Select(lanes, Load(lanes, numbers + i), All(kNothing)), greatest[0]);
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

// The greatest of those that are numbers, or −∞.
SIMD void MaximaOfColumns(const float* logits, int64_t count, int64_t width, float* maxima) {
  std::fill_n(maxima, width, kNothing);
  for (int64_t start = 0; start < count; start += width) {
    const int64_t in_line = std::min(width, count - start);
    const float* line = logits + start;
    for (int64_t column = 0; column < in_line; ++column)
      maxima[column] = line[column] > maxima[column] ? line[column] : maxima[column];
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

// The count-th greatest, where what is no number counts as −∞.
float KthOf(const float* numbers, int64_t size, int64_t count, Held* held) {
  float* among = held->weights.data();
  for (int64_t i = 0; i < size; ++i) among[i] = numbers[i] > kNothing ? numbers[i] : kNothing;
  std::nth_element(among, among + count - 1, among + size, std::greater<float>());
  return among[count - 1];
}

// Keeps the top-k, ties by id, of which `least` is the last's logit.
SIMD void KeepTopK(const float* logits, int64_t count, int64_t top_k, float least, float* weights) {
  int64_t above = 0;
  for (int64_t i = 0; i < count; ++i) above += logits[i] > least;
  int64_t equals = top_k - above;  // there is room for
  for (int64_t i = 0; i < count; ++i) {
    if (logits[i] > least) continue;
    if (logits[i] == least && equals > 0) {
      --equals;
    } else {
      weights[i] = 0;
    }
  }
}

int64_t TokenOf(const Logits& all, const Draw& draw, int64_t row) {
  const int64_t count = all.vocab_size, width = Held::WidthOf(count);
  const float* logits = all.data + row * count;
  Held& held = Held::Of(count);
  float *weights = held.weights.data(), *sums = held.of_columns.data();
  const int64_t top_k = draw.top_k[row];
  const bool is_cut = 0 < top_k && top_k < count;
  const float least = is_cut ? KthOf(logits, count, top_k, &held) : kNothing;
  Weigh(logits, count, GreatestOf(logits, count), draw.factors[row], weights);
  if (is_cut) KeepTopK(logits, count, top_k, least, weights);
  SumColumns(weights, count, width, sums);
  const double total = TotalOf(sums, width, 1);
  if (!(total > 0 && std::isfinite(total))) return kNoNumbers;  // else the likeliest weighs 1
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

// The logarithm of the sum of all exponentials.
double LogTotalOf(const Logits& all, int64_t row) {
  const int64_t count = all.vocab_size, width = Held::WidthOf(count);
  const float* logits = all.data + row * count;
  Held& held = Held::Of(count);
  const float greatest = GreatestOf(logits, count);
  Weigh(logits, count, greatest, 1, held.weights.data());
  SumColumns(held.weights.data(), count, width, held.of_columns.data());
  return greatest + std::log(TotalOf(held.of_columns.data(), width, 1));
}

// Returns what `count` of a row's logits reach at least: the count-th greatest of the columns' maxima, or of all.
float LeastOf(const float* logits, int64_t vocab_size, int64_t count, Held* held) {
  const int64_t width = Held::WidthOf(vocab_size);
  if (count > width) return KthOf(logits, vocab_size, count, held);
  MaximaOfColumns(logits, vocab_size, width, held->of_columns.data());
  return KthOf(held->of_columns.data(), width, count, held);
}

// Collects the tokens whose logits reach the least.
SIMD void Collect(const float* logits, int64_t count, float least, std::vector<Token>* tokens) {
  constexpr int64_t kTogether = 4 * kLanes;  // most of which have none
  tokens->clear();
  for (int64_t start = 0; start < count; start += kTogether) {
    const int64_t end = std::min(count, start + kTogether);
    if (end - start == kTogether) {
      Floats greatest = All(kNothing);
#pragma GCC unroll 4
      for (int64_t i = start; i < end; i += kLanes) greatest = Max(Load(logits + i), greatest);
      if (Greatest(greatest) < least) continue;
    }
    for (int64_t i = start; i < end; ++i)
      if (logits[i] >= least) tokens->push_back({logits[i], i});
  }
}

void FindLikeliestOf(const Logits& all, const Likeliest& wanted, int64_t row) {
  const int64_t vocab_size = all.vocab_size, count = std::min(wanted.counts[row], vocab_size);
  const float* logits = all.data + row * vocab_size;
  int64_t found = 0;
  float* to = wanted.logits + row * wanted.most;
  int64_t* ids = wanted.ids + row * wanted.most;
  if (count > 0) {
    Held& held = Held::Of(vocab_size);
    const float least = LeastOf(logits, vocab_size, count, &held);
    Collect(logits, vocab_size, std::max(least, std::numeric_limits<float>::lowest()), &held.tokens);
    found = std::min<int64_t>(count, held.tokens.size());
    std::partial_sort(held.tokens.begin(), held.tokens.begin() + found, held.tokens.end());
    for (int64_t i = 0; i < found; ++i) to[i] = held.tokens[i].logit, ids[i] = held.tokens[i].id;
  }
  std::fill(to + found, to + wanted.most, kNothing);
  std::fill(ids + found, ids + wanted.most, 0);
}

// Does something for each row, of which a thread takes some at a time.
template <typename OfRow>
void ForEachRow(const Logits& logits, const Threads& threads, const OfRow& of_row) {
  struct Work {
    const OfRow& of_row;
    int64_t rows, rows_a_task;
  };
  const bool is_little = logits.rows * logits.vocab_size < kTooFew;
  Work work{of_row, logits.rows, is_little ? logits.rows : (kTaskTokens + logits.vocab_size - 1) / logits.vocab_size};
  const auto run = [](void* data, size_t task) {
    const Work& work = *static_cast<const Work*>(data);
    const int64_t first = static_cast<int64_t>(task) * work.rows_a_task;
    for (int64_t row = first; row < std::min(work.rows, first + work.rows_a_task); ++row) work.of_row(row);
  };
  threads.ForEach(static_cast<size_t>((logits.rows + work.rows_a_task - 1) / work.rows_a_task), run, &work);
}

void DrawAll(const Logits& logits, const Draw& draw, const Threads& threads) {
  ForEachRow(logits, threads, [&](int64_t row) { draw.ids[row] = TokenOf(logits, draw, row); });
}

void LogTotals(const Logits& logits, double* totals, const Threads& threads) {
  ForEachRow(logits, threads, [&](int64_t row) { totals[row] = LogTotalOf(logits, row); });
}

void FindLikeliest(const Logits& logits, const Likeliest& wanted, const Threads& threads) {
  ForEachRow(logits, threads, [&](int64_t row) { FindLikeliestOf(logits, wanted, row); });
}

}  // namespace vocabulary
}  // namespace
}  // namespace trifold
