// Drawing a token of each row by its weight, as `drawing.py` does without this operator.

#pragma once

#include <cstdint>

#include "threads.h"

namespace trifold {

// What a row has instead of a token: every chance was refused; a logit is no number, or infinite.
constexpr int64_t kUndecided = -1, kNoNumbers = -2;

struct Draw {
  int64_t rows, vocab_size, rounds;
  const float* logits;   // (rows, vocab_size)
  const float* factors;  // (rows): 1 / temperature
  const double* top_p;   // (rows): 1 for no filter
  const float* min_p;    // (rows): 0 for no filter
  const double* chances; // (rows, rounds, 2): for a column and for a line of it, from 0 to below 1
  int64_t* ids;          // (rows)
};

}  // namespace trifold
