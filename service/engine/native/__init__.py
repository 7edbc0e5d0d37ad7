"""Products of 8-bit integers by operators of our own, where the processor has the instructions for them (AVX2 or NEON).

`linear.cpp` multiplies, by the tiles of `tiles.h` where there are some. `operators.cpp` is what ONNX Runtime sees of
it, `library.py` finds what was built of them, and `graph.py` puts the operator into a package's graph when it is
loaded. Packages do not know of it.
"""
