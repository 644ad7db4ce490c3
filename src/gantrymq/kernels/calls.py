"""Calls of kernels in the compiled library, without Numba.

The library is made when the package is built (``build``) and opened at the first call of a kernel (``loader``).

A call converts each argument to one or more 64-bit words (a number, or the address and the lengths of an array). The
compiled code reads them and writes its results after them. The words are kept for the next call, which usually has the
same arrays: reading an array's address takes longer than a small kernel.

The GIL is not held during the call, unless the kernel ``holds_gil``. On a busy machine it takes milliseconds to get the
GIL back from another thread, which has taken it meanwhile; a kernel of some microseconds is not worth that.

Thread rule: kernels may be called from any thread.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gantrymq.kernels.codes import RESULT_WORDS
from gantrymq.kernels.loader import library

if TYPE_CHECKING:
    from gantrymq.kernels.variants import Variant

Code = Callable[[Any], None]
_DATA_AT = 40  # offset of the data pointer in PyArrayInterface on 64-bit systems
_word = ctypes.c_void_p
# a private object: the attribute of that name is shared by all users of ctypes
_pointer_of = ctypes.pythonapi["PyCapsule_GetPointer"]
_pointer_of.restype, _pointer_of.argtypes = ctypes.c_size_t, (ctypes.py_object, ctypes.c_char_p)


class KernelEntry(NamedTuple):
    """A kernel's code.

    ``results`` is the number of results, or -1 for a single number instead of a tuple. ``kinds`` are the argument kinds
    that it was compiled for.
    """

    code: Code
    results: int
    kinds: str


class Kernel:
    """The kernel ``name`` of the module ``gantrymq.kernels.MODULE``. Call it like the kernel.

    Arrays must be C-contiguous, with the element types of the kernel's documentation. Raises TypeError for arguments of
    other types, and KernelsError at the first call if there is no library.
    """

    def __init__(self, module: str, name: str, *, holds_gil: bool = False) -> None:
        self.module = module
        self.name = name
        self._prototype = ctypes.PYFUNCTYPE if holds_gil else ctypes.CFUNCTYPE
        self._entry: KernelEntry | None = None
        self._idle: list[_Call] = []  # at most one; a call takes it, so that no other thread writes into its words

    @property
    def full_name(self) -> str:
        """The name in the library's index."""
        return f"{self.module}.{self.name}"

    def symbol(self, variant: Variant) -> str:
        """Return the name of its code for one processor variant."""
        return f"gantrymq_{variant.name}_{self.module}_{self.name}"

    def __call__(self, *arguments: Any) -> Any:
        """Call the kernel. The first call of a process opens the library."""
        try:
            call = self._idle.pop()
        except IndexError:
            call = None
        if call is None or not call.take(arguments):
            words: list[int] = []
            kinds = tuple([_append_words(words, argument) for argument in arguments])
            call = _Call(self._checked(kinds), words, arguments)
        result = call.run()
        self._idle[:] = (call,)
        return result

    def _checked(self, kinds: tuple[Any, ...]) -> KernelEntry:
        """Return the entry, after a check of the argument kinds.

        Two threads may create it at once; both get the same.
        """
        if self._entry is None:
            opened = library()
            address, results, wanted = opened.entry(self.full_name, self.symbol(opened.variant))
            self._entry = KernelEntry(self._prototype(None, ctypes.c_void_p)(address), results, wanted)
        if repr(kinds) != self._entry.kinds:
            raise TypeError(f"kernel {self.full_name} takes {self._entry.kinds}, not {kinds}")
        return self._entry


def kinds_of(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the kinds of the arguments, which a kernel's code depends on."""
    words: list[int] = []
    return tuple([_append_words(words, argument) for argument in arguments])


class _Call:
    """The words of a call, reused by the next call with arguments of the same kinds."""

    __slots__ = ("_arrays", "_at", "_block", "_code", "_numbers", "_results", "_tuples")

    def __init__(self, entry: KernelEntry, words: list[int], arguments: tuple[Any, ...]) -> None:
        self._code, self._results, self._at = entry.code, entry.results, len(words)
        self._block = (ctypes.c_int64 * (len(words) + RESULT_WORDS))(*words)
        self._arrays: list[_Array] = []
        self._tuples: list[tuple[int, Any]] = []
        self._numbers: list[tuple[int, int]] = []
        at = 0
        for index, argument in enumerate(arguments):
            if isinstance(argument, np.ndarray):
                self._arrays.append(_Array(index, at, argument))
                at += 1 + argument.ndim
            elif isinstance(argument, tuple):
                self._tuples.append((index, argument))
                at += _word_count(argument)
            else:
                self._numbers.append((index, at))
                at += 1

    def take(self, arguments: tuple[Any, ...]) -> bool:
        """Write these arguments into the words. Returns False if their kinds differ from those of the kept call."""
        block = self._block
        for array in self._arrays:
            argument = arguments[array.index]
            if array.reference() is not argument and not array.take(argument, block):
                return False
        for index, previous in self._tuples:
            if arguments[index] is not previous:
                return False
        for index, at in self._numbers:
            block[at] = int(arguments[index])
        return True

    def run(self) -> Any:
        self._code(self._block)
        at, results = self._at, self._results
        if results < 0:
            return self._block[at]
        return tuple(self._block[at : at + results]) if results else None


class _Array:
    """An array argument. The reference is weak, because a strong one would keep the mapping of a closed file."""

    __slots__ = ("at", "index", "kind", "reference")

    def __init__(self, index: int, at: int, array: Any) -> None:
        self.index, self.at, self.kind = index, at, (array.dtype.char, array.ndim)
        self.reference = weakref.ref(array)

    def take(self, argument: Any, block: Any) -> bool:
        if not isinstance(argument, np.ndarray) or (argument.dtype.char, argument.ndim) != self.kind:
            return False
        at = self.at
        block[at] = address_of(argument)
        for length in argument.shape:
            at += 1
            block[at] = length
        self.reference = weakref.ref(argument)
        return True


def _word_count(argument: Any) -> int:
    words: list[int] = []
    _append_words(words, argument)
    return len(words)


def address_of(array: Any) -> int:
    """Return the address of the first element of a C-contiguous array, through NumPy's C array interface.

    NumPy's dictionary of the same data takes twice as long. Raises TypeError for another array.
    """
    if not array.flags.c_contiguous:
        raise TypeError("a kernel takes C-contiguous arrays only")
    capsule = array.__array_struct__
    return int(_word.from_address(_pointer_of(capsule, None) + _DATA_AT).value or 0)


def _append_words(words: list[int], argument: Any) -> Any:
    """Append the words of ``argument``. Returns its kind, which the code depends on."""
    if isinstance(argument, np.ndarray):
        words.append(address_of(argument))
        words.extend(argument.shape)
        return argument.dtype.char, argument.ndim
    if isinstance(argument, tuple):
        kinds = tuple([_append_words(words, part) for part in argument])
        return type(argument).__name__, kinds
    words.append(int(argument))
    return "i"
