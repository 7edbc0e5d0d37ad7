#include "kernels.h"

#if defined(__aarch64__) && defined(__linux__) && defined(__GNUC__)

#include <sys/auxv.h>

#include "registers_neon.h"
// Behind its registers.
#include "attention_kernel.h"
#include "linear_kernel.h"
#include "ragged_attention_kernel.h"
#include "vocabulary_kernel.h"

namespace trifold {

const Kernels* NeonKernels() {
  constexpr unsigned long kDotProducts = 1ul << 20;  // HWCAP_ASIMDDP
  if ((getauxval(AT_HWCAP) & kDotProducts) == 0) return nullptr;
  static const Kernels kernels{"NEON, dot products", linear::ScratchBytes, linear::Multiply, cached::Attend,
                               ragged::Attend,
                               vocabulary::DrawAll, vocabulary::LogTotals, vocabulary::FindLikeliest};
  return &kernels;
}

}  // namespace trifold

#else  // another processor, compiler or system

namespace trifold {

const Kernels* NeonKernels() { return nullptr; }

}  // namespace trifold

#endif
