"""The start of a stream is one offset for the life of its query, in whichever order Spark asks for it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from micro_batches import MicroBatches

from gantrymq import EmbeddedBroker, Message, Producer
from gantrymq.errors import ConfigError
from gantrymq.spark import RocketMQDataSource
from gantrymq.spark.data_loss import DataLossError
from gantrymq.spark.plan.stream_offsets import from_json, offsets_behind
from gantrymq.spark.read import stream as stream_module
from store_cases import NOON_MS, await_dispatch, numbered, open_store


def numbers(first: int, stop: int) -> list[bytes]:
    return [b"%08d" % number for number in range(first, stop)]


@pytest.fixture(params=["4.1", "4.3"])
def is_old(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether Spark calls in the order of 4.0 and 4.1: the end before the start, and without limits."""
    if request.param == "4.1":
        monkeypatch.setattr(stream_module, "has_stream_limits", lambda: False)
    return bool(request.param == "4.1")


class Sender:
    """A store that gets another message whenever ``send`` is called."""

    def __init__(self, path: Path, first: int = 0) -> None:
        self.path, self.count = path, 0
        self.store = open_store(path=path)
        self.send(first)

    def send(self, count: int = 1, topic: str = "orders") -> None:
        """Put messages with the next numbers."""
        self.store.put_batch(numbered(count, first=self.count, topic=topic))
        self.count += count
        await_dispatch(self.store)


@pytest.fixture
def new_sender(tmp_path: Path) -> Iterator[Callable[..., Sender]]:
    """A function that opens the store of a broker and puts a number of messages into it."""
    made = []

    def make(broker: str, first: int = 10) -> Sender:
        made.append(Sender(tmp_path / broker, first))
        return made[-1]

    yield make
    for sender in made:
        sender.store.close()


@pytest.fixture
def sender(new_sender: Callable[..., Sender]) -> Sender:
    return new_sender("s")


def flat(batches: list[list[bytes]]) -> list[bytes]:
    return [body for batch in batches for body in batch]


STARTS: dict[str, dict[str, object]] = {
    "latest": {},
    "JSON": {"startingOffsets": '{"orders":{"s":{"0":-1}}}'},
    "a time to come": {"startingTimestamp": NOON_MS * 2, "startingOffsetsByTimestampStrategy": "latest"},
    "a number": {"startingOffsets": '{"orders":{"s":{"0":10}}}'},
    "earliest": {"startingOffsets": "earliest"},
}
CASES = {name: (start, False) for name, start in STARTS.items()}
CASES |= {f"{name}, available now": (STARTS[name], True) for name in ("latest", "earliest")}


@pytest.mark.parametrize(("start", "available_now"), CASES.values(), ids=CASES)
def test_messages_between_first_calls_are_read_once(
    sender: Sender, is_old: bool, start: dict[str, object], available_now: bool
) -> None:
    query = MicroBatches(str(sender.path), sender.send, is_old=is_old, **start)
    first = query.run(available_now=available_now)
    later = flat([*first, *query.run(3, available_now=available_now), *query.run(3)])
    begin = 0 if start.get("startingOffsets") == "earliest" else 10
    # What came with the last calls waits for a trigger to come.
    assert later == numbers(begin, begin + len(later))
    assert len(later) > (10 if begin == 0 else 0)


@pytest.mark.parametrize(("start", "available_now"), CASES.values(), ids=CASES)
def test_restart_during_first_batch_repeats_it(
    sender: Sender, is_old: bool, start: dict[str, object], available_now: bool
) -> None:
    query = MicroBatches(str(sender.path), sender.send, is_old=is_old, **start)
    died = [query.run(dies=True, available_now=available_now) for _ in range(3)]
    assert died[0] == died[1] == died[2]
    [first] = query.run(available_now=available_now)
    assert [first] == died[0]
    later = flat([first, *query.run(3, available_now=available_now), *query.run(3)])
    begin = 0 if start.get("startingOffsets") == "earliest" else 10
    assert later == numbers(begin, begin + len(later))


def test_first_batch_from_end_of_queues_is_empty_before_4_2(sender: Sender, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_module, "has_stream_limits", lambda: False)
    query = MicroBatches(str(sender.path), sender.send, is_old=True)
    assert query.run() == [[]]


@pytest.mark.parametrize("maximum", [{"maxOffsetsPerTrigger": 1}, {"maxBytesPerTrigger": 1}], ids=["rows", "bytes"])
def test_limited_first_batch_begins_at_first_offsets(sender: Sender, maximum: dict[str, object]) -> None:
    query = MicroBatches(str(sender.path), sender.send, is_old=False, **maximum)
    assert query.run(dies=True) == query.run(dies=True) == [numbers(10, 11)]
    assert flat(query.run(3)) == numbers(10, 13)


@pytest.mark.parametrize("is_glob", [True, False], ids=["glob", "list"])
def test_several_stores_have_one_start_each(
    tmp_path: Path, new_sender: Callable[..., Sender], is_old: bool, is_glob: bool
) -> None:
    senders = [new_sender(f"stores/{name}") for name in ("a", "b")]

    def send() -> None:
        for sender in senders:
            sender.send()

    path = f"{tmp_path}/stores/*" if is_glob else ",".join(str(sender.path) for sender in senders)
    query = MicroBatches(path, send, is_old=is_old)
    first = query.run(dies=True)
    assert query.run(dies=True) == first
    found = flat([*query.run(), *query.run(3)])
    assert sorted(found) == sorted(numbers(10, 10 + len(found) // 2) * 2)
    assert found


def test_first_batches_of_cluster_have_one_start(is_old: bool) -> None:
    with EmbeddedBroker() as broker, Producer(broker.namesrv) as producer:
        sent = 0

        def send() -> None:
            nonlocal sent
            producer.send(Message("orders", b"%08d" % sent))
            sent += 1

        for _ in range(10):
            send()
        query = MicroBatches("", send, is_old=is_old, nameserver=broker.namesrv, subscribe="orders")
        first = query.run(dies=True)
        assert [sorted(batch) for batch in query.run(dies=True)] == [sorted(batch) for batch in first]
        found = sorted(flat([*query.run(), *query.run(3)]))
    assert found == numbers(10, 10 + len(found))
    assert found


def test_queue_created_after_first_offsets_is_read_from_its_begin(sender: Sender, is_old: bool) -> None:
    def send() -> None:
        sender.send()
        sender.store.put_batch(numbered(1, first=sender.count + 1000, topic=f"topic{sender.count % 7}"))
        await_dispatch(sender.store)

    query = MicroBatches(str(sender.path), send, is_old=is_old)
    first = query.run(dies=True)
    assert query.run(dies=True) == first
    found = flat([*query.run(), *query.run(3)])
    assert len(found) == len(set(found))
    olds, fresh = (sorted(body for body in found if (body >= b"00001000") is late) for late in (False, True))
    assert olds == numbers(10, 10 + len(olds))
    assert fresh == numbers(1011, 1011 + len(fresh))
    assert fresh


def test_store_empty_at_first_offsets_is_read_from_its_begin(new_sender: Callable[..., Sender], is_old: bool) -> None:
    sender = new_sender("s", 0)
    query = MicroBatches(str(sender.path), sender.send, is_old=is_old)
    first = query.run(dies=True)
    assert query.run(dies=True) == first
    found = flat([*query.run(), *query.run(3)])
    assert found == numbers(0, len(found))
    assert found


def recreate_topic(sender: Sender, count: int) -> None:
    sender.store.delete_topic("orders")
    sender.count = 500
    sender.send(count)


def once(step: Callable[[], None]) -> Callable[[], None]:
    """A function that does ``step`` the first time only."""
    steps = [step]
    return lambda: steps.pop()() if steps else None


@pytest.mark.parametrize("count", [3, 40], ids=["shorter", "longer"])
def test_topic_recreated_during_first_batch_raises(sender: Sender, is_old: bool, count: int) -> None:
    query = MicroBatches(str(sender.path), lambda: None, is_old=is_old, startingOffsets="earliest")
    assert query.run(dies=True) == [numbers(0, 10)]
    recreate_topic(sender, count)
    for _ in range(2):
        with pytest.raises(DataLossError, match=r"the messages|offset 10 was expected"):
            query.run()


def test_topic_recreated_after_first_offsets_is_reset(new_sender: Callable[..., Sender]) -> None:
    strict, lenient = new_sender("strict"), new_sender("lenient")
    query = MicroBatches(str(strict.path), once(lambda: recreate_topic(strict, 40)), is_old=False)
    with pytest.raises(DataLossError, match=r"onQueueReset=earliest reads"):
        query.run()
    recreate = once(lambda: recreate_topic(lenient, 40))
    query = MicroBatches(str(lenient.path), recreate, is_old=False, onQueueReset="earliest")
    found = flat([*query.run(dies=True), *query.run(), *query.run(3)])
    assert found == numbers(500, 540)


def delete_first_file(path: Path) -> None:
    min((path / "commitlog").iterdir()).unlink()


def test_retention_during_first_batch_is_data_loss(
    new_sender: Callable[..., Sender], is_old: bool, caplog: pytest.LogCaptureFixture
) -> None:
    sender = new_sender("s", 400)
    sender.store.close()
    given: dict[str, Any] = {"is_old": is_old, "startingOffsets": "earliest"}
    strict = MicroBatches(str(sender.path), lambda: None, **given)
    lenient = MicroBatches(str(sender.path), lambda: None, **given, failOnDataLoss=False)
    for query in (strict, lenient):
        assert query.run(dies=True) == [numbers(0, 400)]
    delete_first_file(sender.path)
    with pytest.raises(DataLossError, match="the messages at offsets 0 to "):
        strict.run()
    [rows] = lenient.run()
    assert rows == numbers(400 - len(rows), 400)
    assert len(rows) < 400
    assert f"the messages at offsets 0 to {399 - len(rows)} are missing" in caplog.text


def test_wrong_start_option_at_restart_is_ignored_after_first_batch(sender: Sender, is_old: bool) -> None:
    """The options of the start count for a new query only; before 4.2 the end is asked for without telling which."""
    options = {"startingOffsets": '{"orders":{"s":{"0":3}}}'}
    query = MicroBatches(str(sender.path), sender.send, is_old=is_old, **options)
    found = flat(query.run())
    query.options["startingOffsets"] = '{"gone":{"s":{"0":3}}}'
    for available_now in (True, False):
        found += flat(query.run(2, available_now=available_now))
    assert found == numbers(3, 3 + len(found))
    with pytest.raises(ConfigError, match="gone"):
        MicroBatches(
            str(sender.path), sender.send, is_old=is_old, startingOffsets=query.options["startingOffsets"]
        ).run()


def test_trigger_without_new_messages_starts_no_batch(sender: Sender, is_old: bool) -> None:
    query = MicroBatches(str(sender.path), lambda: None, is_old=is_old, startingOffsets="earliest")
    assert query.run(3, available_now=True) == [numbers(0, 10)]
    assert query.run(3, available_now=True) == []
    sender.send()
    assert query.run(3, available_now=True) == [numbers(10, 11)]
    assert query.run(3, available_now=True) == []


def test_checkpoint_of_older_release_in_first_batch_is_accepted(sender: Sender, is_old: bool) -> None:
    query = MicroBatches(str(sender.path), lambda: None, is_old=is_old, startingOffsets="earliest")
    query.ends.append('{"orders":{"s":{"0":10}}}')
    assert query.run() == [numbers(0, 10)]
    query = MicroBatches(str(sender.path), sender.send, is_old=is_old)
    query.ends.append('{"orders":{"s":{"0":8}}}')
    assert query.run() == [[]]


def test_start_in_checkpoint_is_not_taken_for_topic_offset(sender: Sender, is_old: bool) -> None:
    query = MicroBatches(str(sender.path), lambda: None, is_old=is_old, startingOffsets="earliest")
    query.run()
    end = json.loads(query.ends[0])
    assert end["#start"]["orders"] == {"s": {"0": 0}}
    assert {key.topic for key in from_json(end)} == {"orders"}
    assert offsets_behind({"endOffset": end, "latestOffset": end})["offsetsBehindLatest"] == 0
    again = RocketMQDataSource({"path": str(sender.path), "startingOffsets": query.ends[0]})
    reader = again.streamReader(again.schema())
    assert from_json(reader.initialOffset()) == from_json(end)
    reader.stop()
