"""What is done with a mutant: everything that opens a store it did not write itself.

Nothing but a named error may come of it, and what says that it made a sound store must have made one.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from mutants import Mutant, open_quiet, settings_of

from gantrymq.clock import ManualClock
from gantrymq.config.settings import MessageStoreConfig, RecoverRule
from gantrymq.errors import GantrymqError
from gantrymq.model.message import Message
from gantrymq.store.message_store import MessageStore
from gantrymq.store.reader import StoreReader
from gantrymq.tools.findings import FindingKind, Severity
from gantrymq.tools.rebuild import rebuild_store
from gantrymq.tools.salvage import salvage_store
from gantrymq.tools.verify import verify_store
from memory_file_system import MemoryFileSystem
from store_cases import GEOMETRY_KEYS, NOON_MS, ROOT, content, files_of

OUT = Path("/salvaged")
LATER_MS = NOON_MS + 3_600_000
MAX_READ = 1000
MAX_BYTES = 16 << 20  # what a store of a few kilobytes may take on the disk, however it is damaged


@dataclass(frozen=True)
class Trial:
    """A mutant, and the settings that it is opened with. ``scratch`` is a directory for those who read real files."""

    mutant: Mutant
    config: MessageStoreConfig
    given: frozenset[str]
    scratch: Path

    @property
    def fs(self) -> MemoryFileSystem:
        return self.mutant.fs


def try_out(number: int, scratch: Path) -> str:
    """Make mutant ``number`` and use it in one way; returns which, and how that went. Only named errors may come."""
    mutant = Mutant.make(number)
    return run_way(mutant.rng.choice(WAYS), mutant, scratch)


def run_way(way: Callable[[Trial], None], mutant: Mutant, scratch: Path) -> str:
    """Use a mutant in one way, with settings drawn from its chance."""
    rng = mutant.rng
    given = rng.choice((GEOMETRY_KEYS, frozenset[str]()))
    rule = rng.choice((RecoverRule.V5, RecoverRule.V4))
    config = settings_of(mutant.end, recover_rule=rule, message_index_safe=rng.random() < 0.2)
    name = way.__name__.replace("_", " ")
    try:
        way(Trial(mutant, config, given, scratch))
        assert sum(len(node.live) for node in mutant.fs._live.values()) < MAX_BYTES
        return f"{name}: done"
    except GantrymqError as error:
        return f"{name}: {type(error).__name__}"
    except BaseException as error:
        error.add_note(f"{name}, {mutant}")
        raise


def verify(trial: Trial) -> None:
    for _ in verify_store(ROOT, trial.config, given=trial.given, fs=trial.fs):
        pass


def open_and_write(trial: Trial) -> None:
    """Recovery, every kind of reading, a put, the services, a close, and all that again."""
    store = open_quiet(trial.fs, trial.config, trial.given, ManualClock(LATER_MS))
    read_all(store)
    store.put(Message("orders", b"afterwards", keys=["k"]))
    for runner in store._runners:
        runner.step()
    store.close()
    again = open_quiet(trial.fs, trial.config, trial.given, ManualClock(2 * LATER_MS - NOON_MS))
    assert again.recovery.last_exit_ok
    again.close()


def read(trial: Trial) -> None:
    """What ``dump``, ``info``, ``at`` and ``query`` do, from real files, none of which may change."""
    trial.scratch.mkdir()
    try:
        before = files_of(trial.fs)
        for path, data in before.items():
            target = trial.scratch / path.relative_to(ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
        with StoreReader.open(trial.scratch, trial.config, given=trial.given, clock=ManualClock(LATER_MS)) as reader:
            reader.plan()
            if is_short(reader):
                for _ in reader.messages():
                    pass
            ask(reader)
        for path, data in before.items():
            assert (trial.scratch / path.relative_to(ROOT)).read_bytes() == data
    finally:
        shutil.rmtree(trial.scratch)


def rebuild(trial: Trial) -> None:
    rebuild_store(ROOT, trial.config, given=trial.given, fs=trial.fs)
    store = open_quiet(trial.fs, trial.config, trial.given, ManualClock(LATER_MS))
    read_all(store)
    store.close()


def salvage(trial: Trial) -> None:
    """The damaged store stays as it is. Where its log was whole, what was salvaged of it is a store without damage.

    A record has its queue offset without a checksum: two may have the same. A value in ``config/`` that cannot be true
    is copied as it is, for its file can be used.
    """
    before = files_of(trial.fs)
    salvage_store(ROOT, OUT, trial.config, given=trial.given, fs=trial.fs)
    assert files_of(trial.fs) == before
    found = list(verify_store(OUT, trial.config, given=trial.given, fs=trial.fs, now_ms=LATER_MS))
    if not any("commitlog" in change for change in trial.mutant.changes):
        assert not [one for one in found if one.level is Severity.DAMAGE and one.kind is not FindingKind.CONFIG_JSON], (
            found
        )


WAYS: tuple[Callable[[Trial], None], ...] = (verify, open_and_write, open_and_write, read, rebuild, salvage)


def is_short(store: MessageStore | StoreReader) -> bool:
    """Whether it is a matter of milliseconds to read every queue: a damaged unit may say that one is endless."""
    return all(high - low < MAX_READ for _, _, low, high in store.queues())


def read_all(store: MessageStore) -> None:
    delivered = content(store) if is_short(store) else {}
    assert all(message.phy_offset >= 0 for messages in delivered.values() for message in messages.values())
    ask(store)


def ask(store: MessageStore | StoreReader) -> None:
    for topic, queue_id, low, high in store.queues()[:5]:
        store.get(topic, queue_id, (low + high) // 2, tags="paid || Aa")
        store.offset_at(topic, queue_id, NOON_MS + 11_000)
    for key in ("AaAa", "k" * 200, "订单-7"):
        store.query("orders", key, max_num=MAX_READ)
    for offset in (0, 1, 4096, store.max_phy_offset, 1 << 62, -1):
        store.message_at(offset)
