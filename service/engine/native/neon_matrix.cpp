#include "kernels.h"

#if defined(__aarch64__) && defined(__linux__) && defined(__GNUC__) && !defined(TRIFOLD_WITHOUT_MATRIX_PRODUCTS)

#include <sys/auxv.h>

#define TRIFOLD_MATRIX_PRODUCTS
#include "registers_neon.h"
// Behind its registers.
#include "attention_kernel.h"
#include "linear_kernel.h"
#include "ragged_attention_kernel.h"
#include "vocabulary_kernel.h"

namespace trifold {

const Kernels* NeonMatrixKernels() {
  constexpr unsigned long kMatrixProducts = 1ul << 13;  // HWCAP2_I8MM, of processors that have dot products, too
  if ((getauxval(AT_HWCAP2) & kMatrixProducts) == 0) return nullptr;
  static const Kernels kernels{"NEON, matrix products", linear::ScratchBytes, linear::Multiply, cached::Attend,
                               ragged::Attend,
                               vocabulary::DrawAll, vocabulary::LogTotals, vocabulary::FindLikeliest};
  return &kernels;
}

}  // namespace trifold

#else  // another processor, compiler or system

namespace trifold {

const Kernels* NeonMatrixKernels() { return nullptr; }

}  // namespace trifold

#endif
