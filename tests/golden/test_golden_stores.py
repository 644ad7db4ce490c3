"""Stores that the real RocketMQ wrote: read and recovered here they say what RocketMQ read out of them."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from gantrymq.config.properties import read_settings
from gantrymq.config.reading import Reading
from gantrymq.config.settings import MessageStoreConfig
from gantrymq.format.record import CheckCRC, Layout, crc_matches, decode_record
from gantrymq.format.stop_reason import StopReason
from gantrymq.fs.overlay import OverlayFileSystem
from gantrymq.store.message_store import MessageStore
from gantrymq.store.opening import load_parts
from gantrymq.store.paths import StorePaths
from gantrymq.store.reader import StoreReader
from golden_stores import NAMES, unpack
from store_cases import dump, message_fields, physical, tree

Line = dict[str, Any]

# RocketMQ looks at ten files at most where the queues are lost; we look at all unless told otherwise.
ALL_IS_READ = {"lost-queues-many-files": "expected-all.jsonl"}


@dataclass(frozen=True)
class Golden:
    """An unpacked golden store."""

    name: str
    directory: Path

    @property
    def store(self) -> Path:
        return self.directory / "store"

    def lines(self, file: str) -> list[Line]:
        return [json.loads(line) for line in (self.directory / file).read_text("utf-8").splitlines()]

    @property
    def expected(self) -> list[Line]:
        return self.lines(ALL_IS_READ.get(self.name, "expected.jsonl"))

    @property
    def queries(self) -> dict[tuple[str, str], list[int]]:
        answers = json.loads((self.directory / "queries.json").read_text("utf-8"))
        return {tuple(question.split("|", 1)): offsets for question, offsets in answers.items()}

    def settings(self, **more: object) -> Reading:
        """The configuration of the broker that wrote the store; what only a broker knows is a warning."""
        about = json.loads((self.directory / "about.json").read_text("utf-8"))
        return read_settings({key: str(value) for key, value in (about["config"] | more).items()})


@pytest.fixture(params=NAMES)
def golden(request: pytest.FixtureRequest, tmp_path: Path) -> Golden:
    return Golden(request.param, unpack(request.param, tmp_path))


def recover(golden: Golden, config: MessageStoreConfig | None = None) -> MessageStore:
    """The store opened for writing, and closed again."""
    store = MessageStore.open(golden.store, config, housekeeping=False)
    store.close()
    assert not store.failures
    return store


def assert_answers(golden: Golden, reader: StoreReader) -> None:
    """What RocketMQ's index answered is the beginning of what ours does: we may have indexed more."""
    for (topic, key), offsets in golden.queries.items():
        assert reader.query_offsets(topic, key)[: len(offsets)] == offsets, (topic, key)


def messages_tree(golden: Golden) -> list[object]:
    """The files of the log and of the queues."""
    return [tree(golden.store / folder) for folder in ("commitlog", "consumequeue")]


def without_repeats(offsets: list[int]) -> list[int]:
    return [offset for offset, _ in groupby(offsets)]


@pytest.mark.parametrize("trusts_writer", [False, True])
def test_reader_sees_what_rocketmq_recovered(golden: Golden, trusts_writer: bool) -> None:
    before = tree(golden.store)
    with StoreReader.open(golden.store, trusts_writer=trusts_writer) as reader:
        assert dump(reader) == golden.expected
        assert_answers(golden, reader)
    assert tree(golden.store) == before


def test_recovered_golden_store_reads_like_rocketmq(golden: Golden) -> None:
    recover(golden)
    assert not (golden.store / "abort").exists()
    with StoreReader.open(golden.store) as reader:
        assert reader.last_exit_ok
        assert dump(reader) == golden.expected
        assert_answers(golden, reader)


def test_second_recovery_changes_nothing(golden: Golden) -> None:
    recover(golden)
    once = tree(golden.store)
    again = recover(golden).recovery
    assert tree(golden.store) == once
    assert (again.cut_bytes, again.queue_units_cut, again.queue_units_added, again.index_entries_added) == (0, 0, 0, 0)


def test_second_recovery_after_crash_changes_no_message(golden: Golden) -> None:
    recover(golden)
    (golden.store / "abort").write_bytes(b"")
    once = messages_tree(golden)
    recover(golden)
    assert messages_tree(golden) == once
    with StoreReader.open(golden.store) as reader:
        assert dump(reader) == golden.expected
        # As with RocketMQ the last record that was indexed is indexed once more after each crash.
        for (topic, key), offsets in golden.queries.items():
            once = without_repeats(offsets)
            answers = without_repeats(reader.query_offsets(topic, key, max_num=len(offsets) + 1))
            assert answers[: len(once)] == once, (topic, key)


def test_golden_store_opens_with_its_settings(golden: Golden) -> None:
    reading = golden.settings()
    with StoreReader.open(golden.store, reading.config, given=reading.given) as reader:
        assert dump(reader) == golden.expected
        assert reader.config == reading.config


@pytest.mark.parametrize("golden", ["lost-queues-many-files"], indirect=True)
def test_recovery_with_rocketmq_limit_reads_ten_files(golden: Golden) -> None:
    config = golden.settings(commitLogRecoverMaxNum=10).config
    recover(golden, config)
    with StoreReader.open(golden.store, config) as reader:
        assert dump(reader) == golden.lines("expected.jsonl")


@pytest.mark.parametrize("golden", ["direct-propcrc"], indirect=True)
def test_every_property_crc_is_right(golden: Golden) -> None:
    config = golden.settings(forceVerifyPropCRC=True).config
    (golden.store / "abort").write_bytes(b"")
    (golden.store / "checkpoint").unlink()
    recovery = recover(golden, config).recovery
    assert (recovery.start_offset, recovery.cut_bytes, recovery.stop_reason) == (0, 0, "zeros")
    with StoreReader.open(golden.store) as reader:
        assert dump(reader) == golden.expected


def physical_lines(store: Path) -> Iterator[Line]:
    """Every record of the commit log, before anybody recovers it."""
    parts, _, _ = load_parts(OverlayFileSystem(), StorePaths(store), MessageStoreConfig(), (), now_ms=0)
    log = parts.log
    for offset, found, file in physical(log, log.min_offset, log.max_offset):
        if file is None or not isinstance(found, Layout | StopReason):
            break
        buffer, position = file.array.data, offset - file.file_from_offset
        if isinstance(found, Layout):
            message = decode_record(buffer, position, found)
            yield {
                "kind": "message",
                "topic": message.topic,
                "queueId": message.queue_id,
                "queueOffset": message.queue_offset,
                "phyOffset": offset,
                "size": found.size,
                "version": message.version,
                "crcOk": crc_matches(buffer, position, found, CheckCRC.BODY),
                **message_fields(message),
            }
        elif found is StopReason.BLANK:
            size = int.from_bytes(buffer[position : position + 4], "big")
            yield {"kind": "blank", "phyOffset": offset, "size": size}
        else:
            yield {"kind": "end", "phyOffset": offset, "reason": found.value}
    parts.close()


def test_every_physical_record_is_read(golden: Golden) -> None:
    assert list(physical_lines(golden.store)) == golden.lines("commitlog.jsonl")
