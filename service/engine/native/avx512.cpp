#include "kernels.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(TRIFOLD_WITHOUT_AVX512)  // tests leave it out

#include "registers_avx512.h"
// Behind its registers.
#include "attention_kernel.h"
#include "ragged_attention_kernel.h"
#include "tiled_linear_kernel.h"
#include "vocabulary_kernel.h"

namespace trifold {

const Kernels* Avx512Kernels() {
  const bool is_supported = __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
                            __builtin_cpu_supports("avx512vnni");
  if (!is_supported) return nullptr;
  static const Kernels kernels{linear::HasTiles() ? "AVX-512 VNNI and AMX" : "AVX-512 VNNI", linear::ScratchBytes,
                               linear::MultiplyByEither, cached::Attend, ragged::Attend,
                               vocabulary::DrawAll, vocabulary::LogTotals, vocabulary::FindLikeliest};
  return &kernels;
}

}  // namespace trifold

#else  // another processor or compiler

namespace trifold {

const Kernels* Avx512Kernels() { return nullptr; }

}  // namespace trifold

#endif
