"""Random damage to a store of known content: whatever rebuild, salvage and export do not have, they name.

    python tests/fuzz/losses.py --count 1000 --seed 1
    python tests/fuzz/losses.py --trial 1000027

A trial is numbered seed * 10^6 + n; ``--trial``, or LOSS=number of test_losses.py, tries that one alone. ``make fuzz``
runs it.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))

from harms import HARMS
from loss_cases import KnownStore, Slot, assert_told, read_back

from gantrymq.errors import GantrymqError
from gantrymq.tools.export import export_store
from gantrymq.tools.export_files import ExportFormat
from gantrymq.tools.rebuild import rebuild_store
from gantrymq.tools.reports import LossAccount
from gantrymq.tools.salvage import salvage_store
from store_cases import GEOMETRY_KEYS, SMALL

A_SEED = 10**6
Rescue = Callable[[Path, Path], tuple[dict[Slot, bytes], LossAccount]]


def rebuild(path: Path, out: Path) -> tuple[dict[Slot, bytes], LossAccount]:
    account = rebuild_store(path, SMALL, given=GEOMETRY_KEYS).account
    return read_back(path), account


def salvage(path: Path, out: Path) -> tuple[dict[Slot, bytes], LossAccount]:
    account = salvage_store(path, out, SMALL, given=GEOMETRY_KEYS).account
    return read_back(out), account


def export(path: Path, out: Path) -> tuple[dict[Slot, bytes], LossAccount]:
    account = export_store(path, out, ExportFormat.JSONL, None, SMALL, given=GEOMETRY_KEYS).account
    rows = [json.loads(line) for part in out.glob("*/*/*.jsonl") for line in part.read_bytes().splitlines()]
    result = {Slot(row["topic"], row["queue_id"], row["queue_offset"]): (row["body"] or "").encode() for row in rows}
    assert len(result) == len(rows), "two rows of one queue offset"
    return result, account


RESCUES: dict[str, Rescue] = {"rebuild": rebuild, "salvage": salvage, "export": export}


def try_loss(whole: KnownStore, number: int, scratch: Path) -> str:
    """Damage a copy of ``whole``, mostly in two ways, rescue it in one way, and check; returns how it went."""
    rng = random.Random(number)
    store, out = KnownStore(Path(shutil.copytree(whole.path, scratch / "store")), whole.puts), scratch / "out"
    way = rng.choice(list(RESCUES))
    told = [rng.choice(HARMS)(store, rng) for _ in range(rng.choice((1, 2, 2, 2)))]
    try:
        lost = assert_told(store, *RESCUES[way](store.path, out))
        return f"{way}: {'something' if lost else 'nothing'} lost"
    except GantrymqError as error:
        return f"{way}: {type(error).__name__}"
    except BaseException as error:
        error.add_note(f"python tests/fuzz/losses.py --trial {number}: {way} after {'; '.join(told)}")
        raise
    finally:
        shutil.rmtree(store.path)
        shutil.rmtree(out, ignore_errors=True)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--trial", type=int)
    options = parser.parse_args()
    first, count = options.seed * A_SEED, options.count
    if options.trial is not None:
        first, count = options.trial, 1
    outcomes: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as directory:
        whole = KnownStore.make(Path(directory) / "whole", with_old_queues=True)
        for number in range(first, first + count):
            try:
                outcomes[try_loss(whole, number, Path(directory))] += 1
            except Exception as error:
                outcomes["wrong"] += 1
                print(f"{error}\n{' '.join(error.__notes__)}", flush=True)
    print(*(f"{count:8} {name}" for name, count in sorted(outcomes.items())), sep="\n")
    return 1 if outcomes["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
