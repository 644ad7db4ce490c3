"""The formats over arrays: Numba kernels that run without the GIL and raise nothing.

``gantrymq.format`` is the reference; tests compare the kernels with it. A kernel takes arrays and numbers and returns
(count, stop code, stop position). It allocates nothing that grows with its input, so its caller decides about memory.

Call kernels through ``api``. They are compiled ahead of time, when the package is built, into one shared library with
code for each processor variant. Running them needs neither Numba nor LLVM. A checkout builds its library at the first
use after a kernel has changed. Arrays must be C-contiguous; byte arrays are uint8 (``arrays.read_only`` makes a view of
any buffer), other arrays int64 unless a kernel's documentation says otherwise, and numbers are Python ints.

======================  ===============================================================================
module                  content
======================  ===============================================================================
``api``                 the kernels for callers, and the argument types of each, by example (no Numba)
``codes``               rows of the column matrix, checks, stop codes (no Numba)
``arrays``              views and matrices that obey the typing rule (no Numba)
``queue_table``,        the table that numbers queues, the matrix of sends (no Numba)
``send_columns``
``calls``               how a call works (no Numba)
``loader``,             the library of compiled kernels: opening it, and the variant for this processor (no Numba)
``variants``
``build``               building the library: detecting changes, compiling, linking (no Numba)
``compiler``            compiles one kernel to an object file
``jit``, ``intrinsics`` how kernels compile; machine instructions that Python lacks
``crc``                 CRC-32
``scan``                records of a commit log into the column matrix
``cut``, ``cuts``       records without their bodies; its call for clients (no Numba, no NumPy)
``entries``, ``text``   properties of a record; UTF-8 and Java's String.hashCode
``queues``              dispatch to consume queues; checks of their units
``index``               keys, index files; comparing the index file of a killed process with the log
``digest``              scan and dispatch data in one pass
``torn``                records that a power cut has torn
``verify``              the next record after damage; checks of index files by themselves and by the log
``encode``              records from columns, with their properties from columns or maps
``read_sends``          plain sends from their frames
``encode_wire``         records made from plain sends and from batches in wire format; responses to sends
``columns``             records into Arrow's buffers, hosts and message ids as text
``json_fields``         the fields of flat JSON objects
======================  ===============================================================================

``python -m gantrymq.kernels`` brings the library of a checkout up to date; `make setup` does so.
"""
