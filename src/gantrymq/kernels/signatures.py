"""The argument types that each kernel is compiled for, given as example arguments without any record."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from gantrymq.kernels import api
from gantrymq.kernels.arrays import new_columns, new_scratch, read_only
from gantrymq.kernels.calls import Kernel
from gantrymq.kernels.queue_table import new_table


def calls() -> Iterator[tuple[Kernel, tuple[Any, ...]]]:
    """Yield every kernel with example arguments of the right types, without any record."""
    buf, out = read_only(bytes(64)), np.zeros(64, np.uint8)
    matrix, longs, offsets = new_columns(1), np.zeros(2, np.int64), np.zeros(2, np.int32)
    entries = (offsets, offsets, longs, longs)
    table, scratch, header = new_table(2), new_scratch(), np.ones(6, np.int64)
    text = (0, 0, out, offsets)
    arrow = (buf, longs)
    yield api.crc32, (buf, 0, 0)
    yield api.scan, (buf, 0, 0, 0, 0, matrix)
    yield api.read_each, (buf, longs, 0, 0, matrix)
    yield api.assign_queues, (buf, matrix, 0, 0, table, longs)
    yield api.tags_codes, (buf, matrix, 0, longs, longs)
    yield api.missing_units, (matrix, 0, longs, longs, longs, longs)
    yield api.encode_units, (matrix, 0, longs, longs, 1, out, matrix, longs)
    yield api.first_torn, (buf, matrix, 0)
    yield api.digest, (buf, 0, 0, 0, 0, 0, matrix, matrix, table, longs, longs, longs, offsets, offsets)
    yield api.valid_units, (buf, 0, 0, 0)
    yield api.rising_units, (buf, 0, 0, 0, 0)
    yield api.index_hashes, (buf, matrix, 0, 0, 1, offsets, offsets)
    yield api.index_put, (out, 1, out, 0, 1, header, *entries, 0, 0)
    yield api.index_select, (buf, 1, 1, header, 0, 0, 0, 0, longs, out, longs)
    yield api.index_balance, (out, 0, 0)
    yield api.index_confirm, (out, 1, 1, header, *entries, 0, 0, 0, 0)
    yield api.index_repair, (out, out, 1, 0)
    yield api.index_clear, (out, 0, 0, 0)
    yield api.find_record, (buf, 0, 0, 0)
    yield api.index_chains, (buf, 1, 0, longs, np.zeros((2, 1), np.int64))
    yield api.index_compare, (buf, 0, 0, longs, longs, longs, 0, 0, 0, out, np.zeros((2, 1), np.int64))
    yield api.encode_batch, (out, 0, 0, 0, *arrow, *arrow, *arrow, buf, buf, 0, matrix, 0, 0)
    yield api.measure_wire_batch, (read_only(b""),)
    yield api.encode_wire_batch, (out, 0, 0, buf, buf, buf, 0, np.empty(0, np.int64))
    yield api.read_sends, (buf, 0, matrix, out, buf, longs, matrix)
    yield api.encode_sends, (out, 0, 0, buf, out, np.empty((1, 0), np.int64), buf, buf, buf, 0, 0, 0, 0, longs)
    yield api.encode_send_answers, (out, np.empty((1, 0), np.int64), out, buf, longs)
    yield api.fill_property, (buf, *arrow, 0, longs, out)
    yield api.size_map, (longs, longs, longs, 0, longs)
    yield api.fill_map, (longs, *arrow, *arrow, 0, longs, out)
    yield api.gather, (buf, longs, longs, *text)
    yield api.gather_text, (buf, longs, longs, *text)
    yield api.find_property, (buf, matrix, 0, buf, longs, longs)
    yield api.properties_map, (buf, matrix, 0, 0, scratch, offsets, out, offsets, out, offsets)
    yield api.split_keys, (buf, longs, longs, 0, 0, offsets, out, offsets)
    yield api.hosts_text, (buf, longs, longs, 0, *text)
    yield api.message_ids, (buf, longs, longs, longs, *text)
    yield api.joined_message_ids, (buf, longs[:0], out)
