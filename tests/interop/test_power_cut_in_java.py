"""What is left of our store after power cuts, recovered by us, is for the real RocketMQ the same store."""

import random
import sys
from pathlib import Path

import pytest

from store_cases import SMALL, SMALL_KEYS, dump, open_reader, to_disk

from .java import JavaStore

sys.path.insert(0, str(Path(__file__).parent.parent / "crash"))  # where pytest finds the modules of that folder

from crash_cases import TIMES, Machine

pytestmark = pytest.mark.interop


@pytest.mark.parametrize("run", [*range(2), *(pytest.param(n, marks=pytest.mark.slow) for n in range(2, 20 * TIMES))])
def test_java_recovers_power_cut_store_as_we_do(run: int, tmp_path: Path, rng: random.Random) -> None:
    sizes = ("mapped_file_size_commit_log", "mapped_file_size_consume_queue", "max_hash_slot_num", "max_index_num")
    machine = Machine.draw(rng, **{name: getattr(SMALL, name) for name in sizes})
    for _ in range(3):
        machine.work(machine.open(), 60)
        machine.fs = machine.power_cut()
    machine.open().close()

    path, config = tmp_path / "store", machine.config
    to_disk(machine.fs, path)
    settings = SMALL_KEYS | {
        "enableConsumeQueueExt": config.enable_consume_queue_ext,
        "mappedFileSizeConsumeQueueExt": config.mapped_file_size_consume_queue_ext,
        "enabledAppendPropCRC": config.enabled_append_prop_crc,
        "forceVerifyPropCRC": config.force_verify_prop_crc,
    }
    with open_reader(path, config) as reader:
        ours = dump(reader)
    assert JavaStore(path, settings).dump(halt=True) == ours
