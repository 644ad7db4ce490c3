"""``python -m gantrymq.kernels``: compiles every kernel with the argument types it is used with, or loads it.

The first run fills the cache (about half a minute); later ones show how long loading takes, which is what a command
waits for when it starts. Kernels are called with nothing to do, so that only their compilation costs time.
"""

import time
from collections.abc import Iterator
from typing import Any


def calls() -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """Every kernel with arguments of the types in use, for no records at all."""
    import numpy as np

    from gantrymq.kernels import columns, crc, encode, encode_maps, encode_properties, hosts, index, queues, scan, units
    from gantrymq.kernels.arrays import new_columns, read_only

    buf, out = read_only(bytes(64)), np.zeros(64, np.uint8)
    matrix, longs, offsets = new_columns(1), np.zeros(2, np.int64), np.zeros(2, np.int32)
    table, scratch, header = queues.new_table(2), columns.new_scratch(), np.ones(6, np.int64)
    text = (0, 0, out, offsets)
    yield crc.crc32, (buf, 0, 0)
    yield scan.scan, (buf, 0, 0, 0, 0, matrix)
    yield scan.walk, (buf, 0, 0, 1, longs)
    yield queues.assign_queues, (buf, matrix, 0, 0, table, longs)
    yield queues.tags_codes, (buf, matrix, 0, longs, longs)
    yield queues.encode_units, (matrix, 0, longs, longs, 1, out, longs, longs)
    yield units.recover_units, (buf, 0, 0)
    yield units.truncate_units, (buf, 0, 0, 0)
    yield units.first_unit_at_or_after, (buf, 0, 0, 0)
    yield index.index_hashes, (buf, matrix, 0, 0, 1, longs, longs)
    yield index.index_put, (out, 1, 1, header, longs, longs, longs, 0, 0)
    yield index.index_select, (buf, 1, 1, header, 0, 0, 0, 0, longs)
    yield index.index_geometry_check, (buf, 0, 0, 0)
    yield index.index_geometry_score, (buf, 0, 0)
    arrow = (buf, longs)
    yield encode.encode_batch, (out, 0, 0, 0, *arrow, *arrow, *arrow, buf, buf, 0, matrix, 0, 0)
    yield encode_properties.size_property, (0, *arrow, buf, 0, 0, longs)
    yield encode_properties.fill_property, (buf, *arrow, buf, 0, 0, longs, out)
    yield encode_maps.size_map, (longs, longs, longs, 0, longs)
    yield encode_maps.fill_map, (longs, *arrow, *arrow, 0, longs, out)
    yield columns.gather, (buf, longs, longs, *text)
    yield columns.gather_text, (buf, longs, longs, *text)
    yield columns.find_property, (buf, matrix, 0, buf, longs, longs)
    yield columns.properties_map, (buf, matrix, 0, 0, scratch, offsets, out, offsets, out, offsets)
    yield columns.split_keys, (buf, longs, longs, 0, 0, offsets, out, offsets)
    yield hosts.hosts_text, (buf, longs, longs, 0, *text)
    yield hosts.message_ids, (buf, longs, longs, longs, *text)


def main() -> int:
    """Compile or load, and say how long each took."""
    started = time.perf_counter()
    planned = list(calls())
    print(f"{'importing':24}{time.perf_counter() - started:8.3f} s", flush=True)
    for kernel, arguments in planned:
        begun = time.perf_counter()
        kernel(*arguments)
        how = "loaded" if sum(kernel.stats.cache_hits.values()) else "compiled"
        print(f"{kernel.__name__:24}{time.perf_counter() - begun:8.3f} s  {how}", flush=True)
    print(f"{'all':24}{time.perf_counter() - started:8.3f} s")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
