"""Writes hosts and message ids of records as text into Arrow's buffers.

``at`` has the positions of hosts in ``buf`` (rows BORN_HOST_AT or STORE_HOST_AT of a column matrix). Outputs and
results are as in ``gantrymq.kernels.columns``.

Source: ``gantrymq.model.host.Host`` and ``gantrymq.model.message.message_id``.
"""

import numpy as np

from gantrymq.kernels.arrays import Bytes, Int32s, Int64s
from gantrymq.kernels.codes import MAX_HOST_TEXT, STOP_DONE, STOP_FULL
from gantrymq.kernels.entries import same_bytes
from gantrymq.kernels.intrinsics import copy, load_i16, load_i32
from gantrymq.kernels.jit import helper, kernel
from gantrymq.model.flags import STORE_HOST_V6

_MAX_ID_TEXT = 56
_OFFSET_TEXT = 16
_COLON, _DOT, _MINUS, _COMMA = ord(":"), ord("."), ord("-"), ord(",")
_LOWER = np.frombuffer(b"0123456789abcdef", np.uint8)
_UPPER = np.frombuffer(b"0123456789ABCDEF", np.uint8)


@helper
def _write_number(out: Bytes, at: int, number: int) -> int:
    """Write ``number`` in decimal. Returns the end."""
    if number < 0:
        out[at] = _MINUS
        at += 1
        number = -number
    scale = 1
    while scale * 10 <= number:
        scale *= 10
    while scale:
        out[at] = _LOWER[number // scale % 10]
        at += 1
        scale //= 10
    return at


@helper
def _write_group(out: Bytes, at: int, group: int) -> int:
    """Write two bytes of an IPv6 address in hexadecimal without leading zeros. Returns the end."""
    shift = 12
    while shift and group >> shift == 0:
        shift -= 4
    while shift >= 0:
        out[at] = _LOWER[group >> shift & 15]
        at += 1
        shift -= 4
    return at


@helper
def _write_host(out: Bytes, used: int, buf: Bytes, at: int, is_v6: bool) -> int:
    if is_v6:
        for group in range(8):
            used = _write_group(out, used, load_i16(buf, at + 2 * group) & 0xFFFF)
            out[used] = _COLON
            used += 1
        return int(_write_number(out, used, load_i32(buf, at + 16)))
    for i in range(4):
        used = _write_number(out, used, np.int64(buf[at + i]))
        out[used] = _DOT if i < 3 else _COLON
        used += 1
    return int(_write_number(out, used, load_i32(buf, at + 4)))


@helper
def _is_same_host(buf: Bytes, at: Int64s, sys_flags: Int64s, v6_bit: int, i: int) -> bool:
    """Whether record i has the same host as the record before."""
    size = 20 if sys_flags[i] & v6_bit else 8
    return bool((sys_flags[i] ^ sys_flags[i - 1]) & v6_bit == 0 and same_bytes(buf, at[i], buf, at[i - 1], size))


@kernel
def hosts_text(
    buf: Bytes,
    at: Int64s,
    sys_flags: Int64s,
    v6_bit: int,
    start: int,
    n: int,
    out_values: Bytes,
    out_offsets: Int32s,
) -> tuple[int, int, int]:
    """Write ``ip:port`` of each record. ``v6_bit`` is BORN_HOST_V6 or STORE_HOST_V6.

    A row is written only if ``MAX_HOST_TEXT`` bytes are free. The text of a repeated host is copied.
    """
    used, before = 0, 0
    out_offsets[0] = 0
    for i in range(start, n):
        if used + MAX_HOST_TEXT > out_values.size:
            return i, STOP_FULL, used
        if i > start and _is_same_host(buf, at, sys_flags, v6_bit, i):
            copy(out_values, used, out_values, before, used - before)
            before, used = used, used + used - before
        else:
            before, used = used, _write_host(out_values, used, buf, at[i], sys_flags[i] & v6_bit != 0)
        out_offsets[i - start + 1] = used
    return n, STOP_DONE, used


@helper
def _write_offset(out: Bytes, at: int, phy_offset: int) -> int:
    """Write a physical offset as in a message id, in upper-case hexadecimal. Returns the end."""
    for shift in range(60, -4, -4):
        out[at] = _UPPER[phy_offset >> shift & 15]
        at += 1
    return at


@kernel
def message_ids(
    buf: Bytes,
    at: Int64s,
    sys_flags: Int64s,
    phy_offsets: Int64s,
    start: int,
    n: int,
    out_values: Bytes,
    out_offsets: Int32s,
) -> tuple[int, int, int]:
    """Write the offset message id of each record.

    It consists of the store host at ``at`` and the physical offset, both in upper-case hexadecimal.
    """
    used = 0
    out_offsets[0] = 0
    for i in range(start, n):
        if used + _MAX_ID_TEXT > out_values.size:
            return i, STOP_FULL, used
        size = 20 if sys_flags[i] & STORE_HOST_V6 else 8
        if i > start and _is_same_host(buf, at, sys_flags, STORE_HOST_V6, i):
            copy(out_values, used, out_values, used - 2 * size - _OFFSET_TEXT, 2 * size)
            used += 2 * size
        else:
            for k in range(size):
                byte = buf[at[i] + k]
                out_values[used] = _UPPER[byte >> 4]
                out_values[used + 1] = _UPPER[byte & 15]
                used += 2
        used = _write_offset(out_values, used, phy_offsets[i])
        out_offsets[i - start + 1] = used
    return n, STOP_DONE, used


@kernel
def joined_message_ids(host: Bytes, phy_offsets: Int64s, out: Bytes) -> int:
    """Write the message ids of records with one store host, joined by commas. Returns their size in bytes.

    ``host`` is the part of an id before the physical offset. ``out`` (writable) has ``host.size + 17`` bytes for each
    id.
    """
    at = 0
    for i in range(phy_offsets.size):
        copy(out, at, host, 0, host.size)
        at = _write_offset(out, at + host.size, phy_offsets[i])
        out[at] = _COMMA
        at += 1
    return max(at - 1, 0)
