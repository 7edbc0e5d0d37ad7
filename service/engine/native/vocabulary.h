// What is asked of logits of a whole vocabulary, row by row, as `passes.py` does it in NumPy.

#pragma once

#include <cstdint>

#include "threads.h"

namespace trifold {

struct Logits {
  int64_t rows, vocab_size;
  const float* data;  // (rows, vocab_size)
};

// What a row has instead of a token: every chance was refused; a logit is no number, or infinite.
constexpr int64_t kUndecided = -1, kNoNumbers = -2;

// A token of each row, drawn by its weight.
struct Draw {
  int64_t rounds;
  const float* factors;   // (rows): 1 / temperature
  const int64_t* top_k;   // (rows): 0 for no filter
  const double* top_p;    // (rows): 1 for no filter
  const float* min_p;     // (rows): 0 for no filter
  const double* chances;  // (rows, rounds, 2): for a column and for a token of it, from 0 to below 1
  int64_t* ids;           // (rows)
};

// The likeliest tokens of each row, best first, ties by id; behind a row's last −∞ and 0.
struct Likeliest {
  int64_t most;
  const int64_t* counts;  // (rows): how many, `most` at most; impossible tokens are none of them
  float* logits;          // (rows, most)
  int64_t* ids;           // (rows, most)
};

}  // namespace trifold
