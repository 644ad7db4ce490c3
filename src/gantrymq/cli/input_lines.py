"""Splits input at a delimiter, as much as has arrived, without holding more than one message of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from io import BufferedReader

_READ_BYTES = 1 << 20
TOO_LONG = b"\0 too long"  # this object, compared with `is`, stands for a line that was too long


def read_lines(
    stream: BufferedReader, longest: int, waiting: Callable[[bool], None], delimiter: bytes = b"\n"
) -> Iterator[list[bytes]]:
    """Yield the lines of ``stream`` in lists, as much as has arrived, without waiting for more.

    ``waiting(True)`` is called before each wait for input and ``waiting(False)`` after it. A line longer than
    ``longest`` bytes is replaced by :data:`TOO_LONG`, so that endless input does not take endless memory. The last line
    needs no delimiter.
    """
    begin: list[bytes] = []  # of the line that has not ended
    length = 0
    carry = b""  # its last bytes, which may be the first of a delimiter
    keep = len(delimiter) - 1
    while True:
        waiting(True)
        data = stream.read1(_READ_BYTES)
        waiting(False)
        if not data:
            break
        first, *others = (carry + data if carry else data).split(delimiter)
        if others:
            yield [_line(begin, length, first, longest), *others[:-1]]
            begin, length, first = [], 0, others[-1]
        cut = max(len(first) - keep, 0)
        carry = first[cut:]
        length += cut
        if length > longest:
            begin = []
        elif cut:
            begin.append(first[:cut])
    if length or carry:
        yield [_line(begin, length, carry, longest)]


def _line(begin: list[bytes], length: int, end: bytes, longest: int) -> bytes:
    return TOO_LONG if length + len(end) > longest else b"".join([*begin, end])
