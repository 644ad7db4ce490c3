"""The power fails at any moment, also after a kill: what opens afterwards keeps every promise.

Under SYNC_FLUSH nothing acknowledged is lost. Under ASYNC_FLUSH what is left is a prefix of the log. No message is ever
delivered with wrong bytes, no queue has a hole, queues, index and log agree, and a second recovery changes nothing.
"""

import random
from dataclasses import dataclass, field, replace

import pytest

from gantrymq.config.settings import FlushDiskType, MessageStoreConfig
from gantrymq.format.index import index_keys
from gantrymq.fs.memory import MemoryFileSystem
from gantrymq.model.flags import is_consumable, is_indexable
from gantrymq.model.message import Message, StoredMessage
from gantrymq.model.status import PutMessageStatus
from gantrymq.store.message_store import MessageStore
from store_cases import ROOT, SMALL, await_dispatch, content, files_of, odd_message, open_store

BUSY = replace(
    SMALL,
    flush_interval_commit_log_ms=3,
    flush_commit_log_least_pages=1,
    flush_commit_log_thorough_interval_ms=25,
    flush_interval_consume_queue_ms=3,
    flush_consume_queue_least_pages=0,
    flush_consume_queue_thorough_interval_ms=10,
)
SYNC = replace(BUSY, flush_disk_type=FlushDiskType.SYNC_FLUSH)
RUNS = 12


@dataclass
class Model:
    """What was acknowledged, by physical offset, and how much of the log must survive a power cut."""

    messages: dict[int, StoredMessage] = field(default_factory=dict)
    durable_end: int = 0

    def put(self, store: MessageStore, messages: list[Message], rng: random.Random) -> None:
        """Put messages one by one or as a batch, and note what was said."""
        if len(messages) == 1:
            result = store.put(messages[0])
            statuses, places = {result.status}, [result.phy_offset]
        else:
            batch = store.put_batch(messages)
            assert not batch.rejected
            statuses, places = {batch.status}, batch.phy_offsets.tolist()
        assert statuses == {PutMessageStatus.PUT_OK}
        for place in places:
            stored = store.message_at(place)
            assert stored is not None
            self.messages[place] = stored
        if store.config.flush_disk_type is FlushDiskType.SYNC_FLUSH:
            self.durable_end = self.end

    @property
    def end(self) -> int:
        return max((at + message.size_bytes for at, message in self.messages.items()), default=0)

    def check(self, store: MessageStore) -> None:
        """What the store holds is a prefix of the log with all that is durable; forget what is behind it."""
        end = store.max_phy_offset
        assert end >= self.durable_end, f"acknowledged up to {self.durable_end}, left up to {end}"
        lost = {at for at, message in self.messages.items() if at + message.size_bytes > end}
        kept = {at: message for at, message in self.messages.items() if at not in lost}
        assert not lost or min(lost) >= max(kept, default=-1)
        delivered = content(store)
        for queue, messages in delivered.items():
            assert list(messages) == list(range(len(messages))), f"{queue} has a hole"
        found = {message.phy_offset: message for messages in delivered.values() for message in messages.values()}
        assert found == {at: message for at, message in kept.items() if is_consumable(message.sys_flag)}
        for at, message in kept.items():
            assert store.message_at(at) == message
        self.check_index(store, kept)
        self.messages, self.durable_end = kept, min(self.durable_end, end)

    @staticmethod
    def check_index(store: MessageStore, kept: dict[int, StoredMessage]) -> None:
        answers: dict[tuple[str, str], set[int]] = {}
        for at, message in kept.items():
            for key in index_keys(message.properties) if is_indexable(message.sys_flag) else ():
                question = (message.topic, key)
                if question not in answers:
                    found = store.query(*question, max_num=10_000)
                    answers[question] = {one.phy_offset for one in found}
                assert at in answers[question], f"{at} is not found under {question}"


def work(store: MessageStore, model: Model, rng: random.Random) -> None:
    """A random number of puts and batches, with a pause here and there so that the services come in between."""
    for _ in range(rng.randrange(1, 40)):
        count = rng.choice((1, 1, 1, rng.randrange(2, 30)))
        model.put(store, [odd_message(rng) for _ in range(count)], rng)
        if rng.random() < 0.05:
            await_dispatch(store)


def abandon(store: MessageStore) -> None:
    """End the threads of a store without its leave, as a kill does."""
    for runner in store._runners:
        runner.abandon()


@pytest.mark.parametrize("run", range(RUNS))
@pytest.mark.parametrize("config", [BUSY, SYNC], ids=["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_a_power_cut_at_any_moment(config: MessageStoreConfig, run: int, rng: random.Random) -> None:
    fs, model = MemoryFileSystem(), Model()
    for _ in range(4):
        store = open_store(fs, config=config)
        model.check(store)
        work(store, model, rng)
        disk = fs.crash_clone(
            rng.choice((0.0, 0.1, 0.5, 0.9, 1.0)), rng.randrange(1 << 30), unit_bytes=rng.choice((4096, 512))
        )
        abandon(store)
        fs = disk
    with open_store(fs, config=config) as store:
        model.check(store)
        # As with RocketMQ, what stands behind the last unit of the queues is indexed again by each open.
        store.put(Message("orders", b"last"))
    once = files_of(fs)
    open_store(fs, config=config).close()
    assert files_of(fs) == once
    assert not fs.exists(ROOT / "abort")
