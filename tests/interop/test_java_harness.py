"""What other tests rely on when they call interop/: acknowledgements are kept, the clock is ours, no line is lost."""

import json
from bisect import bisect_left
from collections import defaultdict
from pathlib import Path

import pytest

from .java import JavaError, JavaStore

pytestmark = pytest.mark.interop

SMALL = {
    "mappedFileSizeCommitLog": 262144,
    "mappedFileSizeConsumeQueue": 4000,
    "maxHashSlotNum": 500,
    "maxIndexNum": 2000,
}
TRANSACTION = 12  # sysFlag bits: 4 is prepared, 12 rolled back; neither is in a queue


def files(store: JavaStore, folder: str) -> dict[Path, bytes]:
    root = store.path / folder
    return {path.relative_to(root): path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_acknowledged_messages_survive_kill(tmp_path: Path, seed: int) -> None:
    store = JavaStore(tmp_path / "store", SMALL)
    acks = tmp_path / "acks"
    assert store.write(8000, seed=seed, threads=3, ack_file=acks, end="kill-while-writing") is None
    acknowledged = [json.loads(line) for line in acks.read_text().splitlines()]
    assert acknowledged
    read = {line["phyOffset"]: line for line in store.dump(halt=True) if line["kind"] == "message"}
    for line in acknowledged:
        if line["sysFlag"] & TRANSACTION in (0, 8):
            assert line.items() <= read[line["phyOffset"]].items()


@pytest.mark.slow
def test_fixed_clock_makes_equal_stores(tmp_path: Path) -> None:
    stores = [JavaStore(tmp_path / name, SMALL) for name in ("one", "other")]
    for store in stores:
        store.write(1000, seed=7, long_topics=True, store_time=1760000000000, store_time_step=3, end="halt")
    one, other = stores
    for folder in ("commitlog", "consumequeue"):
        assert files(one, folder) == files(other, folder)
    indexes = [[content for _, content in sorted(files(store, "index").items())] for store in stores]
    assert indexes[0] == indexes[1]


def test_at_returns_first_offset_of_time(tmp_path: Path) -> None:
    store = JavaStore(tmp_path / "store", SMALL)
    store.write(2000, profile="plain", store_time=1760000000000, store_time_step=1, end="halt")
    times = defaultdict(list)
    for line in store.dump(halt=True):
        if line["kind"] == "message":
            times[line["topic"], line["queueId"]].append(line["storeTimestamp"])
    questions = [
        (topic, queue, time + shift)
        for (topic, queue), known in times.items()
        for time in (known[0], known[1], known[len(known) // 2], known[-1])
        for shift in (-1, 0, 1)
    ]
    expected = [bisect_left(times[topic, queue], time) for topic, queue, time in questions]
    assert store.at(questions, halt=True) == expected


def test_ingest_answers_every_line(tmp_path: Path) -> None:
    store = JavaStore(tmp_path / "store", SMALL)
    results = store.ingest(
        [
            {"topic": "flights", "body": "späť", "tags": "AA", "keys": ["1545", "N14228"], "properties": {"数": "😀"}},
            {"topic": "flights", "queueId": 3, "bodyBase64": "AAEC", "delayLevel": 3},
            {"topic": "flights"},
        ],
        fixed_time=1700000000000,
        store_time=1700000000500,
        store_time_step=1,
        halt=True,
    )
    assert [(line["line"], line["status"]) for line in results] == [(1, "PUT_OK"), (2, "PUT_OK"), (3, "INVALID_LINE")]
    now, later = (
        next(line for line in store.log() if line["phyOffset"] == result["phyOffset"]) for result in results[:2]
    )
    assert now["properties"] == {"数": "😀", "TAGS": "AA", "KEYS": "1545 N14228"}
    assert (now["bornTimestamp"], now["storeTimestamp"]) == (1700000000000, 1700000000500)
    assert (later["topic"], later["queueId"], later["storeTimestamp"]) == ("SCHEDULE_TOPIC_XXXX", 2, 1700000000501)
    assert later["properties"] == {"DELAY": "3", "REAL_TOPIC": "flights", "REAL_QID": "3"}


def test_failed_load_of_store_is_reported(tmp_path: Path) -> None:
    store = JavaStore(tmp_path / "store", SMALL)
    store.write(10, end="halt")
    assert JavaStore(store.path).dump() == [{"kind": "store", "loaded": False}]


def test_unknown_key_is_refused(tmp_path: Path) -> None:
    with pytest.raises(JavaError, match="no such key"):
        JavaStore(tmp_path / "store", {"mapedFileSizeCommitLog": 1}).dump()
