"""The formats over arrays: Numba kernels that release the interpreter and raise nothing.

``gantrymq.format`` is their authority. A kernel takes arrays and numbers and returns (count, stop code, stop
position); it never allocates what grows with its input, so its caller decides about memory. Importing this
package imports nothing: each kernel module brings in Numba when it is first needed.

The typing rule. Numba compiles a kernel anew for every combination of argument types, and a read-only array is
another type than a writable one. So that nothing is compiled (or cached) twice:

- a byte array that a kernel only reads is passed read-only: ``arrays.read_only(buffer)`` makes such a view of
  anything with a buffer (an mmap, bytes, an Arrow buffer, a writable array) in half a microsecond;
- every other array is passed writable and C-contiguous: int64 unless its docstring says otherwise
  (``arrays.int64s(values)`` gives such an array);
- numbers are Python ints (a numpy int64 is the same type; an int32 or a bool is not).

Breaking the rule costs a second compilation, never a wrong answer.

======================  ===============================================================================
module                  what
======================  ===============================================================================
``codes``               rows of the column matrix, checks, stop codes (no Numba)
``arrays``              views and matrices that obey the typing rule (no Numba)
``jit``, ``machine``    how kernels compile; the machine instructions that Python has no words for
``crc``                 CRC-32
``scan``                records of a commit log into the column matrix
``entries``, ``text``   one property of a record; UTF-8 and Java's String.hashCode
``queues``, ``units``   dispatch to consume queues; units of consume queues
``index``               keys, index files
``encode``              records from columns
``encode_properties``,  their properties, from one column for each name, or from a map
``encode_maps``
``columns``, ``hosts``  records into Arrow's buffers; hosts and message ids as text
======================  ===============================================================================

``python -m gantrymq.kernels`` compiles them all; that fills the cache from which later processes load them.
"""
