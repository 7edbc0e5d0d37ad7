#include "kernels.h"

#if defined(__x86_64__) && defined(__GNUC__)

#include <cpuid.h>

#include "registers_avx2.h"
// Behind its registers.
#include "attention_kernel.h"
#include "linear_kernel.h"
#include "ragged_attention_kernel.h"
#include "vocabulary_kernel.h"

namespace trifold {

const Kernels* Avx2Kernels() {
  constexpr unsigned kHalves = 1u << 29;  // F16C, in ECX of leaf 1: older compilers do not know it by name
  unsigned a, b, c, d;
  const bool is_supported = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                            __get_cpuid(1, &a, &b, &c, &d) && (c & kHalves) != 0;
  if (!is_supported) return nullptr;
  static const Kernels kernels{"AVX2", linear::ScratchBytes, linear::Multiply, cached::Attend, ragged::Attend,
                               vocabulary::DrawAll, vocabulary::LogTotals, vocabulary::FindLikeliest};
  return &kernels;
}

}  // namespace trifold

#else  // another processor or compiler

namespace trifold {

const Kernels* Avx2Kernels() { return nullptr; }

}  // namespace trifold

#endif
