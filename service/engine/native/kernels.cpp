#include "kernels.h"

#include <initializer_list>

namespace trifold {

const Kernels* FindKernels() {
  static const Kernels* const found = [] {
    for (const auto kernels : {Avx512Kernels, AvxVnniKernels, Avx2Kernels, NeonMatrixKernels, NeonKernels})
      if (const Kernels* const these = kernels()) return these;
    return static_cast<const Kernels*>(nullptr);
  }();
  return found;
}

}  // namespace trifold
