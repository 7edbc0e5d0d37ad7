"""Products of 8-bit integers by operators of our own, where the processor has the instructions for them (AVX-512 VNNI).

`linear.cpp` multiplies, `operators.cpp` is what ONNX Runtime sees of it, `library.py` finds what was built of both, and
`graph.py` puts the operator into a package's graph when it is loaded. Packages do not know of it.
"""
