"""Products of 8-bit integers, attention and passes over a vocabulary by operators of our own.

They run on processors with AVX2, AVX-VNNI, AVX-512 or NEON. `linear_kernel.h`, `attention_kernel.h`,
`ragged_attention_kernel.h` and `vocabulary_kernel.h` compute over the registers of `registers_*.h`, products of many
rows by the tiles of `tiles.h` where there are some; `kernels.h` finds what this processor can do. `*_operator.cpp` are
what ONNX Runtime sees of it, `library.py` finds what was built of them, and `graph.py` puts the operators into a
package's graph when it is loaded; packages do not know of them. `vocabulary.py` runs those that are in no package.
"""
