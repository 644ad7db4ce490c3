"""The kernels for callers, one row each, and the types that each is compiled for. Nothing here imports Numba.

Each name is the kernel of that name in the named module, which documents it. The first call opens the library of
compiled kernels, and builds it if there is none (:mod:`gantrymq.kernels.calls`). :func:`examples` has example arguments
of each kernel, from which it takes the types.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from gantrymq.kernels.arrays import new_columns, new_scratch, read_only
from gantrymq.kernels.calls import Kernel
from gantrymq.kernels.queue_table import new_table

crc32 = Kernel("crc", "crc32")
scan = Kernel("scan", "scan")
read_each = Kernel("scan", "read_each")
cut_bodies = Kernel("cut", "cut_bodies")
cut_each = Kernel("cut", "cut_each")
assign_queues = Kernel("queues", "assign_queues")
tags_codes = Kernel("queues", "tags_codes")
missing_units = Kernel("queues", "missing_units")
encode_units = Kernel("queues", "encode_units")
first_torn = Kernel("torn", "first_torn")
digest = Kernel("digest", "digest")
valid_units = Kernel("queues", "valid_units")
rising_units = Kernel("queues", "rising_units")
index_hashes = Kernel("index", "index_hashes")
index_put = Kernel("index", "index_put")
index_select = Kernel("index", "index_select")
index_balance = Kernel("index", "index_balance")
index_confirm = Kernel("index", "index_confirm")
index_repair = Kernel("index", "index_repair")
index_clear = Kernel("index", "index_clear")
find_record = Kernel("verify", "find_record")
index_chains = Kernel("verify", "index_chains")
index_compare = Kernel("verify", "index_compare")
encode_batch = Kernel("encode", "encode_batch")
measure_wire_batch = Kernel("encode_wire", "measure_wire_batch")
encode_wire_batch = Kernel("encode_wire", "encode_wire_batch")
read_sends = Kernel("read_sends", "read_sends", holds_gil=True)
encode_sends = Kernel("encode_wire", "encode_sends", holds_gil=True)
encode_send_answers = Kernel("encode_wire", "encode_send_answers", holds_gil=True)
fill_property = Kernel("encode", "fill_property")
size_map = Kernel("encode", "size_map")
fill_map = Kernel("encode", "fill_map")
gather = Kernel("columns", "gather")
gather_text = Kernel("columns", "gather_text")
find_property = Kernel("columns", "find_property")
properties_map = Kernel("columns", "properties_map")
split_keys = Kernel("columns", "split_keys")
hosts_text = Kernel("columns", "hosts_text")
message_ids = Kernel("columns", "message_ids")
joined_message_ids = Kernel("columns", "joined_message_ids")
json_fields = Kernel("json_fields", "json_fields")


def examples() -> Iterator[tuple[Kernel, tuple[Any, ...]]]:
    """Yield every kernel with example arguments of the right types, without any record."""
    buf, out = read_only(bytes(64)), np.zeros(64, np.uint8)
    matrix, longs, offsets = new_columns(1), np.zeros(2, np.int64), np.zeros(2, np.int32)
    entries = (offsets, offsets, longs, longs)
    table, scratch, header = new_table(2), new_scratch(), np.ones(6, np.int64)
    text = (0, 0, out, offsets)
    arrow = (buf, longs)
    yield crc32, (buf, 0, 0)
    yield scan, (buf, 0, 0, 0, 0, matrix)
    yield read_each, (buf, longs, 0, 0, matrix)
    yield cut_bodies, (buf, 0, matrix, out, matrix)
    yield cut_each, (buf, 0, 0, matrix, out, matrix, out, matrix)
    yield assign_queues, (buf, matrix, 0, 0, table, longs)
    yield tags_codes, (buf, matrix, 0, longs, longs)
    yield missing_units, (matrix, 0, longs, longs, longs, longs)
    yield encode_units, (matrix, 0, longs, longs, 1, out, matrix, longs)
    yield first_torn, (buf, matrix, 0)
    yield digest, (buf, 0, 0, 0, 0, 0, matrix, matrix, table, longs, longs, longs, offsets, offsets)
    yield valid_units, (buf, 0, 0, 0)
    yield rising_units, (buf, 0, 0, 0, 0)
    yield index_hashes, (buf, matrix, 0, 0, 1, offsets, offsets)
    yield index_put, (out, 1, out, 0, 1, header, *entries, 0, 0)
    yield index_select, (buf, 1, 1, header, 0, 0, 0, 0, longs, out, longs)
    yield index_balance, (out, 0, 0)
    yield index_confirm, (out, 1, 1, header, *entries, 0, 0, 0, 0)
    yield index_repair, (out, out, 1, 0)
    yield index_clear, (out, 0, 0, 0)
    yield find_record, (buf, 0, 0, 0)
    yield index_chains, (buf, 1, 0, longs, np.zeros((2, 1), np.int64))
    yield index_compare, (buf, 0, 0, longs, longs, longs, 0, 0, 0, out, np.zeros((2, 1), np.int64))
    yield encode_batch, (out, 0, 0, 0, *arrow, *arrow, *arrow, buf, buf, 0, matrix, 0, 0)
    yield measure_wire_batch, (read_only(b""),)
    yield encode_wire_batch, (out, 0, 0, buf, buf, buf, 0, np.empty(0, np.int64))
    yield read_sends, (buf, 0, matrix, out, buf, longs, matrix, 0)
    yield encode_sends, (out, 0, 0, buf, out, np.empty((1, 0), np.int64), buf, buf, buf, 0, 0, 0, 0, longs)
    yield encode_send_answers, (out, np.empty((1, 0), np.int64), out, buf, longs)
    yield fill_property, (buf, *arrow, 0, longs, out)
    yield size_map, (longs, longs, longs, 0, longs)
    yield fill_map, (longs, *arrow, *arrow, 0, longs, out)
    yield gather, (buf, longs, longs, *text)
    yield gather_text, (buf, longs, longs, *text)
    yield find_property, (buf, matrix, 0, buf, longs, longs)
    yield properties_map, (buf, matrix, 0, 0, scratch, offsets, out, offsets, out, offsets)
    yield split_keys, (buf, longs, longs, 0, 0, offsets, out, offsets)
    yield hosts_text, (buf, longs, longs, 0, *text)
    yield message_ids, (buf, longs, longs, longs, *text)
    yield joined_message_ids, (buf, longs[:0], out)
    yield json_fields, (*arrow, 0, *arrow, matrix, matrix, matrix, longs, matrix)
