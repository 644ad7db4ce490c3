"""Damage as data: each file of damages/ is a healthy store, what is done to it, and what the tools say afterwards.

A case is a block of commands, ``----`` and the output. The words of the commands are the functions below with their
arguments; a message is TOPIC/QUEUE@OFFSET. Whatever a case prints, every message must be in the result or named.
``pytest tests/tools/test_damages.py --update-transcripts`` writes the outputs. Read the difference before you
commit it.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from loss_cases import KnownStore, Put, Slot, assert_told, read_back

from gantrymq.clock import ManualClock
from gantrymq.format.record import PHY_OFFSET_AT, QUEUE_OFFSET_AT
from gantrymq.fs.real import RealFileSystem
from gantrymq.model.message import Message
from gantrymq.tools.export import export_store
from gantrymq.tools.export_files import ExportFormat
from gantrymq.tools.findings import Severity
from gantrymq.tools.rebuild import rebuild_store
from gantrymq.tools.reports import LossAccount
from gantrymq.tools.salvage import salvage_store
from gantrymq.tools.verify import verify_store
from store_cases import GEOMETRY_KEYS, NOON_MS, SMALL, StoreReader, await_dispatch, open_store

FOLDER = Path(__file__).with_name("damages")
CASE = re.compile(r"(?P<commands>(?:^(?!----$).*\n)+)----\n(?P<output>(?:^.+\n)*)", re.MULTILINE)
FIELDS = {"bodyCRC": (8, 4), "queueId": (12, 4), "queueOffset": (QUEUE_OFFSET_AT, 8), "phyOffset": (PHY_OFFSET_AT, 8)}
BODY_AT = 88


def stored(path: Path, queues: list[tuple[str, int]], count: int) -> KnownStore:
    """``count`` messages in turn in these queues, of one millisecond each."""
    puts, clock = {}, ManualClock(NOON_MS)
    with open_store(RealFileSystem(), path, clock=clock) as opened:
        for number in range(count):
            topic, queue_id = queues[number % len(queues)]
            body = b"%04d" % number * 15
            put = opened.put(Message(topic, body, queue_id=queue_id, tags="paid"))
            puts[Slot(topic, queue_id, put.queue_offset)] = Put(put.phy_offset, put.size_bytes, body)
            clock.advance(1)
        await_dispatch(opened, 120)
    return KnownStore(path, puts)


def queues_of(text: str) -> Iterator[tuple[str, int]]:
    """``orders/0..7`` or ``orders/3``."""
    topic, ids = text.split("/")
    first, _, last = ids.partition("..")
    yield from ((topic, queue_id) for queue_id in range(int(first), int(last or first) + 1))


class Case:
    """One store and what its commands print."""

    def __init__(self, folder: Path, made: dict[str, KnownStore]) -> None:
        self._folder, self._made = folder, made
        self.store = KnownStore(folder / "store", {})
        self.lines: list[str] = []

    def run(self, commands: str) -> str:
        for line in commands.splitlines():
            if line and not line.startswith("#"):
                word, *arguments = line.split()
                getattr(self, f"do_{word.replace('-', '_')}")(*arguments)
        return "".join(f"{line}\n" for line in self.lines)

    def _at(self, text: str) -> tuple[Slot, Put]:
        name, offset = text.split("@")
        topic, queue_id = name.split("/")
        slot = Slot(topic, int(queue_id), int(offset))
        return slot, self.store.puts[slot]

    # The store

    def do_store(self, *words: str) -> None:
        """``store QUEUES… xCOUNT``."""
        key = " ".join(words)
        if key not in self._made:
            queues = [queue for word in words[:-1] for queue in queues_of(word)]
            path = self._folder.parent / f"made-{len(self._made)}"
            self._made[key] = stored(path, queues, int(words[-1].removeprefix("x")))
        made = self._made[key]
        self.store = KnownStore(Path(shutil.copytree(made.path, self._folder / "store")), dict(made.puts))

    # Damage

    def do_flip(self, message: str, field: str, bit: str) -> None:
        """``flip MESSAGE FIELD BIT``, counted from the last bit of the field; of the topic and body from the first."""
        put = self._at(message)[1]
        if field in FIELDS:
            at, length = FIELDS[field]
            place = at + length - 1 - int(bit) // 8
        else:
            place = (BODY_AT if field == "body" else BODY_AT + len(put.body) + 1) + int(bit) // 8
        self.store.flip(put.phy_offset + place, 1 << int(bit) % 8)

    def do_set(self, message: str, field: str, number: str) -> None:
        """``set MESSAGE FIELD NUMBER``."""
        at, length = FIELDS[field]
        self.store.write(self._at(message)[1].phy_offset + at, int(number).to_bytes(length, "big", signed=True))

    def do_zero(self, message: str) -> None:
        """The record becomes zeros."""
        put = self._at(message)[1]
        self.store.write(put.phy_offset, bytes(put.size_bytes))

    def do_copy(self, source: str, target: str) -> None:
        """``copy SOURCE OVER``: a record is written over another one, or a file over another file."""
        if "@" not in source:
            shutil.copyfile(self.store.path / source, self.store.path / target)
            return
        put = self._at(source)[1]
        self.store.write(self._at(target)[1].phy_offset, self.store.read(put.phy_offset, put.size_bytes))

    def do_swap(self, one: str, other: str) -> None:
        """Two records of one size, or two paths, change places."""
        if "@" not in one:
            paths, aside = [self.store.path / name for name in (one, other)], self.store.path / "aside"
            paths[0].rename(aside)
            paths[1].rename(paths[0])
            aside.rename(paths[1])
            return
        (_, at), (_, there) = self._at(one), self._at(other)
        raw = self.store.read(at.phy_offset, at.size_bytes)
        self.store.write(at.phy_offset, self.store.read(there.phy_offset, there.size_bytes))
        self.store.write(there.phy_offset, raw)

    def do_remove(self, name: str) -> None:
        """Remove a file or directory; ``commitlog/-1`` is the last file of the log."""
        path = self.store.path / name
        if name.startswith("commitlog/"):
            path = self.store.log_files[int(path.name)]
        shutil.rmtree(path) if path.is_dir() else path.unlink()

    def do_touch(self, name: str) -> None:
        """Create an empty file."""
        (self.store.path / name).touch()

    # Tools

    def do_rebuild(self) -> None:
        account = rebuild_store(self.store.path, SMALL, given=GEOMETRY_KEYS).account
        self._tell(account, read_back(self.store.path))
        self._tell_quarantine(self.store.path, account)

    def do_salvage(self) -> None:
        out = self._folder / "out"
        account = salvage_store(self.store.path, out, SMALL, given=GEOMETRY_KEYS).account
        assert [one for one in verify_store(out, SMALL, given=GEOMETRY_KEYS) if one.level is Severity.DAMAGE] == []
        self._tell(account, read_back(out))
        self._tell_quarantine(out, account)

    def do_export(self) -> None:
        out = self._folder / "exported"
        account = export_store(self.store.path, out, ExportFormat.JSONL, None, SMALL, given=GEOMETRY_KEYS).account
        rows = [json.loads(line) for path in out.glob("*/*/*.jsonl") for line in path.read_bytes().splitlines()]
        slots = (Slot(row["topic"], row["queue_id"], row["queue_offset"]) for row in rows)
        self._tell(account, dict(zip(slots, (row["body"].encode() for row in rows), strict=True)))

    def do_verify(self) -> None:
        """The kinds of findings, and how many there are."""
        found = [
            one for one in verify_store(self.store.path, SMALL, given=GEOMETRY_KEYS) if one.level is Severity.DAMAGE
        ]
        kinds = sorted({one.kind.value for one in found})
        self.lines += [f"{kind}  {sum(one.count for one in found if one.kind.value == kind)}" for kind in kinds]
        self.lines += [] if found else ["nothing is damaged"]

    def _tell(self, account: LossAccount, result: dict[Slot, bytes]) -> None:
        lost = assert_told(self.store, result, account)
        kinds = ("quarantined", "repaired", "lost", "lost message", "shorter", "filled", "misfiled")
        told = account.lines(self.store.path, 1_000)
        self.lines += [f"{label:12} {text}" for kind in kinds for label, text in told if label == kind]
        if not account.messages and not account.ranges:
            self.lines.append(f"{'lost':12} none")
        self.lines.append(f"{'result':12} {len(result)} messages, {len(lost)} of {len(self.store.puts)} are not in it")

    def _tell_quarantine(self, path: Path, account: LossAccount) -> None:
        """The quarantine is a healthy store, and has every record whole."""
        if not account.quarantined:
            assert not (path / "lost+found").exists()
            return
        lost_found = path / "lost+found"
        with StoreReader.open(lost_found) as reader:
            bodies = [message.body for message in reader.messages()]
        records = [self.store.read(one.phy_offset, one.size_bytes) for one in account.quarantined]
        assert len(bodies) == len(records)
        assert all(any(body in record for record in records) for body in bodies)
        assert [str(one) for one in verify_store(lost_found) if one.level is Severity.DAMAGE] == []


@pytest.fixture(scope="module")
def made() -> dict[str, KnownStore]:
    """The healthy stores, by what makes them."""
    return {}


@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("*.txt")))
def test_damage_is_repaired_quarantined_or_named(
    name: str, made: dict[str, KnownStore], tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> None:
    page = FOLDER / f"{name}.txt"

    def done(case: re.Match[str]) -> str:
        folder = tmp_path_factory.mktemp("case")
        return f"{case['commands']}----\n{Case(folder, made).run(case['commands'])}"

    expected = page.read_text("utf-8")
    said = CASE.sub(done, expected)
    if request.config.getoption("--update-transcripts"):
        page.write_text(said, "utf-8")
    assert said == expected or request.config.getoption("--update-transcripts")
