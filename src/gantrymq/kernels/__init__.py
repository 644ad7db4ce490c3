"""The formats over arrays: Numba kernels that release the interpreter and raise nothing.

``gantrymq.format`` is their authority. A kernel takes arrays and numbers and returns (count, stop code, stop
position); it never allocates what grows with its input, so its caller decides about memory. Importing this package
imports nothing: each kernel module brings in Numba when it is first needed.
"""
