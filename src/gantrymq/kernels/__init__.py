"""The formats over arrays: Numba kernels that release the interpreter and raise nothing.

``gantrymq.format`` is their authority. A kernel takes arrays and numbers and returns (count, stop code, stop
position); it never allocates what grows with its input, so its caller decides about memory.

Callers take kernels from ``api``. They are compiled ahead of time, when the package is built, to one shared library
with the code for each variant of processors; running them needs neither Numba nor LLVM. A checkout builds its library
at the first use after a kernel has changed. Arrays must be C-contiguous; bytes are uint8 (``arrays.read_only`` makes a
view of anything with a buffer), other arrays int64 unless a kernel's documentation says otherwise, numbers Python ints.

======================  ===============================================================================
module                  what
======================  ===============================================================================
``codes``               rows of the column matrix, checks, stop codes (no Numba)
``arrays``              views and matrices that obey the typing rule (no Numba)
``api``, ``calls``      kernels as callers see them, and how they are called (no Numba)
``loader``,             the library of compiled kernels: opening it, and the variant for this processor (no Numba)
``variants``
``queue_table``,        the table that numbers queues, the matrix of sends (no Numba)
``send_columns``
``build``, ``sources``  building the library: what has changed, compiling, linking (no Numba)
``compiler``            one kernel to an object file
``signatures``          the argument types of each kernel, by example (no Numba)
``jit``, ``intrinsics`` how kernels compile; the machine instructions that Python does not have
``crc``                 CRC-32
``scan``                records of a commit log into the column matrix
``entries``, ``text``   one property of a record; UTF-8 and Java's String.hashCode
``queues``, ``units``   dispatch to consume queues; units of consume queues
``index``,              keys, index files; what a killed process left of one, against what the log says
``index_held``
``dispatch_properties`` the properties that dispatch looks at
``digest``              scanning and what dispatch wants to know, in one pass
``torn``                records that a power cut has torn
``verify``              the next record behind damage; index files held against themselves and against the log
``encode``              records from columns
``encode_properties``,  their properties, from one column for each name, or from a map
``encode_maps``
``read_sends``,         plain sends off their frames; records of them, and their answers
``wire_sends``
``wire_batch``          batches as they come over the wire, made into records
``columns``, ``hosts``  records into Arrow's buffers; hosts and message ids as text
======================  ===============================================================================

``python -m gantrymq.kernels`` brings the library of a checkout up to date; `make setup` does so.
"""
