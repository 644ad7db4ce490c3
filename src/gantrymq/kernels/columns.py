"""Writes records into Arrow's buffers: values (uint8) and offsets (int32, one more than rows), lists and maps.

``buf`` (uint8, read-only) and ``columns`` are the input and output of ``scan``. Two int64 arrays, ``at`` and
``length``, give a part of each record (rows of ``columns``, or from :func:`find_property`). A negative length is an
empty part. For hosts and message ids, ``at`` has the positions of hosts in ``buf`` (rows BORN_HOST_AT or
STORE_HOST_AT).

The caller allocates the outputs. Each function works on rows ``start`` to ``n`` and returns (done, stop code, used):
STOP_FULL if an output was too small for row ``done``; ``used`` bytes or elements of it are filled. ``out_offsets[0]``
is row ``start``'s. Each form of text is defined by the named module of ``gantrymq.format`` or ``gantrymq.model``; hosts
and ids by ``gantrymq.model.host.Host`` and ``gantrymq.model.message.message_id``.
"""

import numpy as np

from gantrymq.kernels.arrays import Bytes, Int32s, Int64s, Scratch
from gantrymq.kernels.codes import MAX_HOST_TEXT, PROPERTIES_AT, PROPERTIES_LENGTH, RECORDS_AHEAD, STOP_DONE, STOP_FULL
from gantrymq.kernels.entries import find_byte, find_value, next_entry, same_bytes
from gantrymq.kernels.intrinsics import CACHE_LINE, copy, load_i16, load_i32, prefetch
from gantrymq.kernels.jit import helper, kernel
from gantrymq.kernels.text import copy_repaired, is_well_formed
from gantrymq.model.flags import STORE_HOST_V6

_SPACE = 0x20


@kernel
def gather(
    buf: Bytes, at: Int64s, length: Int64s, start: int, n: int, out_values: Bytes, out_offsets: Int32s
) -> tuple[int, int, int]:
    """Copy a part of each record without changing its bytes."""
    used = 0
    out_offsets[0] = 0
    for i in range(start, n):
        size = max(length[i], 0)
        if used + size > out_values.size:
            return i, STOP_FULL, used
        copy(out_values, used, buf, at[i], size)
        used += size
        out_offsets[i - start + 1] = used
    return n, STOP_DONE, used


@helper
def _copy_text(buf: Bytes, start: int, stop: int, out_values: Bytes, used: int) -> int:
    """Copy text, repaired if necessary. Returns its end, or -1 if ``out_values`` has no room."""
    size = stop - start
    if used + size > out_values.size:
        return -1
    if is_well_formed(buf, start, stop):
        copy(out_values, used, buf, start, size)
        return used + size
    if used + 3 * size > out_values.size:
        return -1
    return int(copy_repaired(buf, start, stop, out_values, used))


@kernel
def gather_text(
    buf: Bytes, at: Int64s, length: Int64s, start: int, n: int, out_values: Bytes, out_offsets: Int32s
) -> tuple[int, int, int]:
    """Like :func:`gather`, for text: the result is well-formed UTF-8 for any input (``model.java.decode_utf8``).

    A malformed row is written only if three times its length are free.
    """
    used = 0
    out_offsets[0] = 0
    for i in range(start, n):
        end = _copy_text(buf, at[i], at[i] + max(length[i], 0), out_values, used)
        if end < 0:
            return i, STOP_FULL, used
        used = end
        out_offsets[i - start + 1] = used
    return n, STOP_DONE, used


@kernel
def find_property(buf: Bytes, columns: Int64s, n: int, name: Bytes, at: Int64s, length: Int64s) -> int:
    """Find the value of the property ``name`` (uint8, read-only) of each record. Returns how many records have one.

    ``at`` and ``length`` are -1 for a record without it (``format.properties``).
    """
    count = 0
    for i in range(n):
        if i + RECORDS_AHEAD < n:
            prefetch(buf, columns[PROPERTIES_AT, i + RECORDS_AHEAD])
            prefetch(buf, columns[PROPERTIES_AT, i + RECORDS_AHEAD] + CACHE_LINE)
        start = columns[PROPERTIES_AT, i]
        at[i], end = find_value(buf, start, start + columns[PROPERTIES_LENGTH, i], name)
        length[i] = -1 if end < 0 else end - at[i]
        count += end >= 0
    return count


@helper
def _collect(text: Bytes, start: int, stop: int, entries: Int64s) -> int:
    """Collect the entries of one record's properties: (name, its length, value, its length).

    Returns how many there are.

    The last value of a name replaces the earlier ones, as in a dict.
    """
    count = 0
    while start < stop:
        at, separator, end = next_entry(text, start, stop)
        if at < stop:
            size, k = separator - at, 0
            while k < count and not (entries[1, k] == size and same_bytes(text, entries[0, k], text, at, size)):
                k += 1
            if k == count:
                entries[0, k] = at
                entries[1, k] = size
                count += 1
            entries[2, k] = separator + 1
            entries[3, k] = end - separator - 1
        start = end + 1
    return count


@kernel
def properties_map(
    buf: Bytes,
    columns: Int64s,
    start: int,
    n: int,
    scratch: Scratch,
    map_offsets: Int32s,
    name_values: Bytes,
    name_offsets: Int32s,
    item_values: Bytes,
    item_offsets: Int32s,
) -> tuple[int, int, int]:
    """Write the properties of each record as Arrow's map<string, string> (``format.properties.decode_properties``).

    Row i's entries are ``map_offsets[i - start]`` to the next. ``used`` counts entries; the bytes of the two value
    arrays end at ``name_offsets[used]`` and ``item_offsets[used]``. Sizes that always suffice, with S the sum of the
    rows' PROPERTIES_LENGTH: 3 * S for each value array (S if all is well-formed), and S // 4 + rows + 1 for each offset
    array.
    """
    entries, repaired = scratch
    used, names, items = 0, 0, 0
    map_offsets[0] = name_offsets[0] = item_offsets[0] = 0
    for i in range(start, n):
        begin = columns[PROPERTIES_AT, i]
        end = begin + columns[PROPERTIES_LENGTH, i]
        if is_well_formed(buf, begin, end):
            count = _collect(buf, begin, end, entries)
            done = _emit(buf, entries, count, used, names, items, name_values, name_offsets, item_values, item_offsets)
        else:
            stop = copy_repaired(buf, begin, end, repaired, 0)
            count = _collect(repaired, 0, stop, entries)
            done = _emit(
                repaired, entries, count, used, names, items, name_values, name_offsets, item_values, item_offsets
            )
        if not done:
            return i, STOP_FULL, used
        used += count
        names, items = name_offsets[used], item_offsets[used]
        map_offsets[i - start + 1] = used
    return n, STOP_DONE, used


@helper
def _emit(
    text: Bytes,
    entries: Int64s,
    count: int,
    used: int,
    names: int,
    items: int,
    name_values: Bytes,
    name_offsets: Int32s,
    item_values: Bytes,
    item_offsets: Int32s,
) -> bool:
    """Write collected entries to the outputs. Returns False if one of them has no room for all."""
    if used + count + 1 > min(name_offsets.size, item_offsets.size):
        return False
    for k in range(count):
        if names + entries[1, k] > name_values.size or items + entries[3, k] > item_values.size:
            return False
        copy(name_values, names, text, entries[0, k], entries[1, k])
        copy(item_values, items, text, entries[2, k], entries[3, k])
        names += entries[1, k]
        items += entries[3, k]
        name_offsets[used + k + 1] = names
        item_offsets[used + k + 1] = items
    return True


@kernel
def split_keys(
    buf: Bytes,
    at: Int64s,
    length: Int64s,
    start: int,
    n: int,
    list_offsets: Int32s,
    out_values: Bytes,
    out_offsets: Int32s,
) -> tuple[int, int, int]:
    """Write the KEYS property of each record as list<string> (``model.message.StoredMessage.keys``).

    ``used`` counts keys. Row i's keys are ``list_offsets[i - start]`` to the next; their bytes end at
    ``out_offsets[used]``.
    """
    used, filled = 0, 0
    list_offsets[0] = out_offsets[0] = 0
    for i in range(start, n):
        key, stop = at[i], at[i] + max(length[i], 0)
        count, after = used, filled
        while key < stop:
            end = find_byte(buf, key, stop, _SPACE)
            if end > key:
                after = _copy_text(buf, key, end, out_values, after)
                if after < 0 or count + 1 >= out_offsets.size:
                    return i, STOP_FULL, used
                count += 1
                out_offsets[count] = after
            key = end + 1
        used, filled = count, after
        list_offsets[i - start + 1] = used
    return n, STOP_DONE, used


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
