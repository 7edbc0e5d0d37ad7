#include "kernels.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(TRIFOLD_WITHOUT_AVX_VNNI)  // for an assembler that knows none

#include <cpuid.h>

#define TRIFOLD_AVX_VNNI
#include "registers_avx2.h"
// Behind its registers.
#include "attention_kernel.h"
#include "linear_kernel.h"
#include "ragged_attention_kernel.h"
#include "vocabulary_kernel.h"

namespace trifold {

const Kernels* AvxVnniKernels() {
#ifdef TRIFOLD_EVEX
  const bool has_products = __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni");
#else
  constexpr unsigned kProducts = 1u << 4;  // in EAX of leaf 7, 1
  unsigned a, b, c, d;
  const bool has_products = __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & kProducts) != 0;
#endif
  if (!has_products || Avx2Kernels() == nullptr) return nullptr;  // whose registers it has
  static const Kernels kernels{"AVX-VNNI", linear::ScratchBytes, linear::Multiply, cached::Attend, ragged::Attend,
                               vocabulary::DrawAll, vocabulary::LogTotals, vocabulary::FindLikeliest};
  return &kernels;
}

}  // namespace trifold

#else  // another processor or compiler

namespace trifold {

const Kernels* AvxVnniKernels() { return nullptr; }

}  // namespace trifold

#endif
