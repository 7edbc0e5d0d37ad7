// What computes our operators, once for each kind of processor: `avx512.cpp`, `avx_vnni.cpp`, `avx2.cpp`, `neon.cpp`,
// `neon_matrix.cpp`. They compile the same sources (`*_kernel.h`) over registers of their own (`registers_*.h`), sixteen
// numbers at a time, whose operations come in the same order, so answers of all of them are the same to the last bit.

#pragma once

#include "attention.h"
#include "linear.h"
#include "vocabulary.h"

namespace trifold {

struct Kernels {
  const char* instructions;  // their names, for a log

  // How much memory `multiply` needs beside inputs and outputs.
  size_t (*scratch_bytes)(const Linear& linear, int64_t rows);

  // Writes y (rows, columns) for x (rows, depth), of which there is one at least, all finite. Throws nothing.
  void (*multiply)(const Linear& linear, const float* x, int64_t rows, float* y, void* scratch, const Threads& threads);

  // Writes keys and values into the cache and what each token attends to into the output. A token's answer is the same
  // to the last bit, whichever tokens and rows are computed with it, if all of its row's numbers are finite. Throws
  // nothing.
  void (*attend)(const Attention& attention, const AttentionRun& run, const Threads& threads);

  // The same without a cache, for whole rows: run.before is 0, run.segments null, and heads may have any width. A thread
  // takes memory for one tile, and keeps it: where there is none, the process ends.
  void (*attend_ragged)(const Attention& attention, const AttentionRun& run, const Threads& threads);

  // Of each row of logits, of which there is one at least: draws a token, or writes what `vocabulary.h` says instead; the
  // logarithm of the sum of all exponentials; the likeliest tokens. A row's are the same whichever rows come with it. A
  // thread takes memory for one row, and keeps it: where there is none, the process ends.
  void (*draw)(const Logits& logits, const Draw& draw, const Threads& threads);
  void (*log_totals)(const Logits& logits, double* totals, const Threads& threads);
  void (*find_likeliest)(const Logits& logits, const Likeliest& wanted, const Threads& threads);
};

// Null where the processor has not the instructions, or the compiler was for another kind.
const Kernels* Avx512Kernels();
const Kernels* AvxVnniKernels();
const Kernels* Avx2Kernels();
const Kernels* NeonMatrixKernels();
const Kernels* NeonKernels();

// The fastest that this processor has the instructions for; null if it has none.
const Kernels* FindKernels();

}  // namespace trifold
