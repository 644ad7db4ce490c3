"""One message with its body, and the messages that are asked for by time, tag, or from the end."""

from __future__ import annotations

import base64
import json
import re
import shutil
import zlib
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cli_cases import Run

from gantrymq.clock import ManualClock
from gantrymq.fs.real import RealFileSystem
from gantrymq.model.message import Message
from store_cases import NOON_MS, SMALL_KEYS, await_dispatch, open_store

SETS = [word for key, value in SMALL_KEYS.items() for word in ("--set", f"{key}={value}")]
NOON = datetime.fromtimestamp(NOON_MS / 1000, UTC)
PACKED = zlib.compress(b"packed" * 100)
BODIES = [
    b'{"id": 7, "name": "\xc3\xa9"}',
    b"two\nlines",
    b"\0\1\xff",
    zlib.compress(b"packed" * 100),
    b'{"a": 1.50}',
    b"",
]


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[int]]:
    """Messages a minute apart, under the keys k0, k1, …; and where they lie."""
    path, clock = tmp_path_factory.mktemp("kept") / "store", ManualClock(NOON_MS)
    places = []
    with open_store(RealFileSystem(), path, clock=clock) as store:
        for number, body in enumerate(BODIES):
            tags, keys = "even" if number % 2 == 0 else "odd", [f"k{number}", "all"]
            sys_flag = 1 if number == 3 else 0
            message = Message("orders", body, tags=tags, keys=keys, sys_flag=sys_flag, queue_id=number % 2)
            places.append(store.put(message).phy_offset)
            clock.advance(60_000)
        await_dispatch(store)
    return path, places


def offsets(lines: list[dict[str, object]]) -> list[tuple[object, object]]:
    return [(line["queueId"], line["queueOffset"]) for line in lines if line["kind"] == "message"]


@pytest.mark.parametrize("number", range(len(BODIES)))
def test_show_prints_message_with_body(gantrymq: Run, kept: tuple[Path, list[int]], number: int) -> None:
    store, places = kept
    by_place = gantrymq("store", "show", store, places[number], *SETS, "--json")
    [line] = by_place.lines
    body = b"packed" * 100 if number == 3 else BODIES[number]
    shown = base64.b64decode(line["bodyBase64"]) if line["body"] is None else line["body"].encode()
    assert (by_place.code, shown, line["crcOk"]) == (0, body, True)
    for what in ([line["msgId"]], ["orders", f"k{number}"]):
        assert gantrymq("store", "show", store, *what, *SETS, "--json").lines == [line]
    [dumped] = [
        one for one in gantrymq("store", "dump", store, *SETS, "--json").lines if one.get("msgId") == line["msgId"]
    ]
    assert {name: line[name] for name in dumped if name != "tagsCode"} | {"tagsCode": dumped["tagsCode"]} == dumped


def test_show_prints_json_text_and_hexadecimal(gantrymq: Run, kept: tuple[Path, list[int]]) -> None:
    store, places = kept
    texts = [gantrymq("store", "show", store, place, *SETS).text for place in places]
    assert texts[0].endswith('{\n  "id": 7,\n  "name": "é"\n}\n')
    assert texts[1].endswith("\ntwo\nlines\n")
    assert "00000000  00 01 ff " in texts[2]
    assert texts[3].endswith("packed" * 100 + "\n")
    assert texts[4].endswith('{"a": 1.50}\n'), "no number changes"
    assert re.search(r"stored +2\d{3}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d ", texts[0])
    assert "newest of 6 with this key" in gantrymq("store", "show", store, "orders", "all", *SETS).text


@pytest.mark.parametrize(
    ("what", "code", "told"),
    [
        (["orders", "nope"], 1, "no message of topic orders has the key nope"),
        (["nope", "k1"], 1, "there is no topic nope"),
        (["17"], 1, "no message begins at offset 17"),
        (["7F00000100002A9F0000000000000011"], 1, "no message begins at offset 17"),
        (["nonsense"], 2, "no offset and no message id"),
        (["a", "b", "c"], 2, "3 words"),
    ],
)
def test_show_of_missing_message_exits_1(
    gantrymq: Run, kept: tuple[Path, list[int]], what: list[str], code: int, told: str
) -> None:
    done = gantrymq("store", "show", kept[0], *what, *SETS)
    assert (done.code, done.text, done.err.count("\n")) == (code, "", 1)
    assert told in done.err


def test_wrong_body_crc_is_reported_by_show_and_dump(
    gantrymq: Run, kept: tuple[Path, list[int]], tmp_path: Path
) -> None:
    store = Path(shutil.copytree(kept[0], tmp_path / "store"))
    with (store / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(kept[1][1] + 88)
        file.write(b"T")
    shown = gantrymq("store", "show", store, kept[1][1], *SETS)
    assert (shown.code, "WRONG CRC" in shown.text, "Two" in shown.text) == (1, True, True)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--tail", "1"], [(0, 2), (1, 2)]),
        (["--tail", "2", "--queue", "0"], [(0, 1), (0, 2)]),
        (["--tag", "odd"], [(1, 0), (1, 1), (1, 2)]),
        (["--tag", "odd", "--tail", "1"], [(1, 2)]),
        (["--tag", "odd", "--max", "2"], [(1, 0), (1, 1)]),
        (["--begin", str(NOON_MS + 60_000), "--end", str(NOON_MS + 180_000)], [(0, 1), (1, 0)]),
        (["--begin", (NOON + timedelta(minutes=1)).isoformat(), "--max", "1"], [(0, 1)]),
        (["--end", NOON.replace(tzinfo=None).isoformat()], []),
        (["--tail", "0"], []),
        (["--max", "0"], []),
    ],
)
def test_dump_prints_selected_messages(
    gantrymq: Run, kept: tuple[Path, list[int]], options: list[str], expected: list[tuple[int, int]]
) -> None:
    done = gantrymq("store", "dump", kept[0], *options, *SETS, "--json")
    assert (done.code, offsets(done.lines)) == (0, expected)


def test_unknown_topic_is_reported(gantrymq: Run, kept: tuple[Path, list[int]]) -> None:
    for words in (["dump", kept[0], "--topic", "nope"], ["query", kept[0], "nope", "k"]):
        done = gantrymq("store", *words, *SETS)
        assert (done.code, done.err) == (0, "gantrymq: warning: there is no topic nope\n")
    done = gantrymq("store", "dump", kept[0], "--topic", "orders", "--queue", "9", *SETS)
    assert "topic orders has no queue 9" in done.err


def test_at_and_query_accept_iso_times(gantrymq: Run, kept: tuple[Path, list[int]]) -> None:
    second = (NOON + timedelta(minutes=2)).isoformat()
    at = gantrymq("store", "at", kept[0], "orders", "0", second, *SETS, "--json")
    assert at.lines == [{"topic": "orders", "queueId": 0, "timestamp": NOON_MS + 120_000, "queueOffset": 1}]
    found = gantrymq("store", "query", kept[0], "orders", "all", "--begin", second, *SETS, "--json")
    assert len(found.lines) == 4
    wrong = gantrymq("store", "at", kept[0], "orders", "0", "yesterday", *SETS)
    assert (wrong.code, "'yesterday' is not milliseconds, or a time like" in wrong.err) == (2, True)


def test_log_with_max_prints_max_records(gantrymq: Run, kept: tuple[Path, list[int]]) -> None:
    store, places = kept
    done = gantrymq("store", "log", store, "--max", "2", *SETS, "--json")
    assert [line["phyOffset"] for line in done.lines] == places[:3]
    assert done.lines[-1] == {"kind": "end", "phyOffset": places[2], "reason": "--max"}
    rest = gantrymq("store", "log", store, "--from", places[2], "--max", "100", *SETS, "--json").lines
    assert [json.dumps(line["phyOffset"]) for line in rest[:-1]] == [str(place) for place in places[2:]]


def test_export_to_stdout_equals_export_to_files(gantrymq: Run, kept: tuple[Path, list[int]], tmp_path: Path) -> None:
    for kind in ("jsonl", "csv"):
        done = gantrymq("store", "export", kept[0], "-", "--format", kind, "--json", *SETS)
        assert done.code == 0
        assert gantrymq("store", "export", kept[0], tmp_path / kind, "--format", kind, *SETS).code == 0
        [written] = (tmp_path / kind).glob(f"*/*/*.{kind}")
        assert done.out == written.read_bytes()
        report = json.loads(done.err)
        assert (report["out"], report["messages"], report["lostMessages"]) == ("-", len(BODIES), [])


def test_export_to_stdout_names_missing_messages_on_stderr(
    gantrymq: Run, kept: tuple[Path, list[int]], tmp_path: Path
) -> None:
    store = Path(shutil.copytree(kept[0], tmp_path / "store"))
    with (store / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(kept[1][1] + 88)
        file.write(b"T")
    done = gantrymq("store", "export", store, "-", "--format", "jsonl", *SETS)
    assert (done.code, len(done.lines)) == (1, len(BODIES) - 1)
    assert "gantrymq: lost message: orders/1 offset 0: crc" in done.err
    assert "5 messages written, 1 message known to be lost" in done.err


def test_export_of_parquet_to_stdout_is_refused(gantrymq: Run, kept: tuple[Path, list[int]]) -> None:
    done = gantrymq("store", "export", kept[0], "-")
    assert (done.code, done.out, done.err.count("\n")) == (2, b"", 1)


def test_key_finds_only_messages_of_its_topic_and_key(gantrymq: Run, tmp_path: Path) -> None:
    """The four index keys have one hash; --raw prints what the index answers, with the topic of each message."""
    path = tmp_path / "store"
    with open_store(RealFileSystem(), path) as store:
        for topic, key in (("AaTopic", "Aa"), ("BBTopic", "BB")):
            store.put(Message(topic, key.encode(), keys=[key]))
        await_dispatch(store)
    for topic, key, found in (("AaTopic", "Aa", 1), ("AaTopic", "BB", 0), ("BBTopic", "Aa", 0)):
        outcome = gantrymq("store", "query", path, topic, key, *SETS, "--json")
        assert [one["topic"] for one in outcome.lines] == [topic] * found
        raw = gantrymq("store", "query", path, topic, key, *SETS, "--json", "--raw")
        assert [one["topic"] for one in raw.lines] == ["BBTopic", "AaTopic"]
        text = gantrymq("store", "query", path, topic, key, *SETS, "--raw").text
        assert "AaTopic/0@0" in text
        assert "BBTopic/0@0" in text
        assert gantrymq("store", "show", path, topic, key, *SETS).code == (0 if found else 1)
