"""Random damage to a store of known content: whatever salvage and rebuild do not have, they name.

    python tests/fuzz/losses.py --count 1000 --seed 1

A trial is numbered seed * 10^6 + n; LOSS=number of test_losses.py tries that one alone. ``make fuzz`` runs it.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))

from loss_cases import LOG_FILE, KnownStore, assert_told, read_back

from gantrymq.errors import GantrymqError
from gantrymq.tools.rebuild import rebuild_store
from gantrymq.tools.salvage import salvage_store
from store_cases import GEOMETRY_KEYS, SMALL

A_SEED = 10**6
Harm = Callable[[KnownStore, random.Random], str]


def flip(store: KnownStore, rng: random.Random) -> str:
    _, put = store.at(rng.random())
    at, mask = put.phy_offset + rng.randrange(put.size_bytes), 1 << rng.randrange(8)
    store.flip(at, mask)
    return f"bit {mask} at {at}"


def flip_head(store: KnownStore, rng: random.Random) -> str:
    _, put = store.at(rng.random())
    at, mask = put.phy_offset + rng.randrange(88), 1 << rng.randrange(8)
    store.flip(at, mask)
    return f"bit {mask} at {at}, byte {at - put.phy_offset} of the record"


def zero(store: KnownStore, rng: random.Random) -> str:
    path = rng.choice(store.log_files)
    at, length = rng.randrange(LOG_FILE // 512) * 512, rng.choice((512, 512, 4096))
    store.write(int(path.name) + at, bytes(min(length, LOG_FILE - at)))
    return f"{length} zeros at {int(path.name) + at}"


def copy_part(store: KnownStore, rng: random.Random) -> str:
    source, target = (rng.choice(store.log_files) for _ in range(2))
    length = rng.choice((600, 4096, LOG_FILE))
    starts = [int(path.name) + rng.randrange(LOG_FILE - length + 1) for path in (source, target)]
    store.write(starts[1], store.read(starts[0], length))
    return f"{length} bytes at {starts[0]} copied to {starts[1]}"


def swap(store: KnownStore, rng: random.Random) -> str:
    one, other = rng.sample(store.log_files, 2)
    raw = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(raw)
    return f"{one.name} and {other.name} swapped"


def remove_last(store: KnownStore, rng: random.Random) -> str:
    path = store.log_files[-1]
    path.unlink()
    return f"{path.name} removed"


def forget(store: KnownStore, rng: random.Random) -> str:
    name = rng.choice(("consumequeue", "index"))
    shutil.rmtree(store.path / name, ignore_errors=True)
    return f"{name} removed"


def damage_queue(store: KnownStore, rng: random.Random) -> str:
    paths = sorted(store.path.glob("consumequeue/*/*/*"))
    if not paths:
        return "no queue is left"
    path = rng.choice(paths)
    raw = bytearray(path.read_bytes())
    raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
    path.write_bytes(raw)
    return f"a bit of {path.relative_to(store.path)}"


HARMS: tuple[Harm, ...] = (flip, flip_head, flip_head, zero, copy_part, swap, remove_last, forget, damage_queue)


def try_loss(whole: KnownStore, number: int, scratch: Path) -> str:
    """Damage a copy of ``whole`` once or twice, rescue it in one way, and check; returns how it went."""
    rng = random.Random(number)
    path = Path(shutil.copytree(whole.path, scratch / "store"))
    store = KnownStore(path, whole.puts)
    is_rebuild = rng.random() < 0.5
    told = [rng.choice(HARMS)(store, rng) for _ in range(rng.choice((1, 1, 2)))]
    way = "rebuild" if is_rebuild else "salvage"
    try:
        if is_rebuild:
            out, account = path, rebuild_store(path, SMALL, given=GEOMETRY_KEYS).account
        else:
            out = scratch / "out"
            account = salvage_store(path, out, SMALL, given=GEOMETRY_KEYS).account
        lost = assert_told(store, read_back(out), account)
        return f"{way}: {'something' if lost else 'nothing'} lost"
    except GantrymqError as error:
        return f"{way}: {type(error).__name__}"
    except BaseException as error:
        error.add_note(f"LOSS={number}: {way} after {'; '.join(told)}")
        raise
    finally:
        shutil.rmtree(path)
        shutil.rmtree(scratch / "out", ignore_errors=True)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    outcomes: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as directory:
        whole = KnownStore.make(Path(directory) / "whole")
        for number in range(options.seed * A_SEED, options.seed * A_SEED + options.count):
            try:
                outcomes[try_loss(whole, number, Path(directory))] += 1
            except Exception as error:
                outcomes["wrong"] += 1
                print(f"{error}\n{' '.join(error.__notes__)}", flush=True)
    print(*(f"{count:8} {name}" for name, count in sorted(outcomes.items())), sep="\n")
    return 1 if outcomes["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
