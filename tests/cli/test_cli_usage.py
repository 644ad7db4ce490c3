"""``gantrymq store usage`` on the command line: its lines, its exit codes, a log in two directories."""

from __future__ import annotations

from pathlib import Path

from cli_cases import Run, tree

from gantrymq.fs.real import RealFileSystem
from store_cases import numbered, open_store

KEYS = ("--set", "mappedFileSizeCommitLog=16384", "--set", "mappedFileSizeConsumeQueue=400")


def test_usage_prints_rows_then_outlook_then_summary(gantrymq: Run, tmp_path: Path) -> None:
    path = tmp_path / "store"
    with open_store(RealFileSystem(), path) as store:
        store.put_batch([*numbered(30, topic="orders"), *numbered(12, topic="%RETRY%group")])
    before = tree(path)
    done = gantrymq("store", "usage", path, "--json")
    assert (done.code, done.err) == (0, "")
    rows = [line for line in done.lines if line["kind"] == "usage"]
    assert [list(line) for line in rows] == [["kind", "topic", "day", "messages", "bytes"]] * 2
    assert [(line["topic"], line["messages"]) for line in rows] == [("%RETRY%group", 12), ("orders", 30)]
    total = {"messages": 42, "bytes": sum(line["bytes"] for line in rows)}
    assert done.lines[-1] == {"kind": "summary", **total}
    assert {line["kind"] for line in done.lines} <= {"usage", "disk", "retention", "summary"}
    people = gantrymq("store", "usage", path)
    assert people.code == 0
    assert "42 in 2 topics" in people.text
    assert "the log has one file, which stays" in people.text
    assert tree(path) == before


def test_usage_of_log_in_two_directories_counts_both(gantrymq: Run, tmp_path: Path) -> None:
    path, other = tmp_path / "store", tmp_path / "other"
    with open_store(RealFileSystem(), path) as store:
        store.put_batch(numbered(300))
    files = sorted((path / "commitlog").iterdir())
    assert len(files) > 2
    other.mkdir()
    for file in files[::2]:
        file.rename(other / file.name)
    conf = tmp_path / "broker.conf"
    conf.write_text(f"storePathCommitLog={path / 'commitlog'},{other}\n")
    done = gantrymq("store", "usage", path, "--json", "-c", conf)
    assert (done.code, done.err) == (0, "")
    assert done.lines[-1]["messages"] == 300
    deletions = [line["file"] for line in done.lines if line["kind"] == "retention"]
    assert deletions == [
        str((other if at % 2 == 0 else path / "commitlog") / file.name) for at, file in enumerate(files[:-1])
    ]


def test_damaged_units_are_problems_and_exit_code_1(gantrymq: Run, tmp_path: Path) -> None:
    path = tmp_path / "store"
    with open_store(RealFileSystem(), path) as store:
        store.put_batch(numbered(200))
    file = min((path / "consumequeue" / "orders" / "0").iterdir())
    with file.open("r+b") as opened:
        opened.seek(20 * 3)
        opened.write(bytes(40))
    done = gantrymq("store", "usage", path, "--json", *KEYS)
    assert done.code == 1
    assert done.lines[-1]["messages"] == 198
    (problem,) = (line["text"] for line in done.lines if line["kind"] == "problem")
    assert problem.startswith("not counted: 2 units of topic orders, queue 0, offsets 3 to 4: ")
    assert done.err == f"gantrymq: warning: {problem}\n"
