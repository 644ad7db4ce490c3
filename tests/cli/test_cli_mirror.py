"""``gantrymq mirror`` of one of our brokers: the copy is whole, and what cannot be copied is one line."""

import json
from pathlib import Path

import pytest
from cli_cases import Run

from gantrymq import EmbeddedBroker, Message, Producer

SMALL = {"mappedFileSizeCommitLog": "65536", "maxHashSlotNum": "100", "maxIndexNum": "400", "haEnable": "true"}


def test_mirror_once_copies_the_log_and_refuses_another_one(tmp_path: Path, gantrymq: Run) -> None:
    copy, other = tmp_path / "copy", tmp_path / "other"
    with EmbeddedBroker(tmp_path / "store", settings=SMALL) as broker, Producer(broker.namesrv) as producer:
        for number in range(50):
            producer.send(Message("T", b"x" * 3000 + b"%d" % number, keys=[f"key-{number}"]))
        words = ("mirror", "-n", broker.namesrv, "--broker", "broker-a", "--store")
        done = gantrymq(*words, copy, "--once", "--json")
        assert done.err == ""
        last = json.loads(done.text.splitlines()[-1])
        assert (done.code, done.err, last["kind"], last["state"]) == (0, "", "summary", "in sync")
        assert (last["messages"], last["history"], last["lag"]["bytes"]) == (50, "whole", 0)
        again = gantrymq(*words, copy, "--once", "--keep", "72h")
        assert (again.code, "0 messages (0 B) copied" in again.text) == (0, True)
        unknown = gantrymq("mirror", "-n", broker.namesrv, "--broker", "b", "--store", other)
        assert (unknown.code, unknown.err) == (
            3,
            "gantrymq: the name server knows no broker b; known: broker-a\n",
        )
        assert not other.exists()
        (tmp_path / "one.jsonl").write_text('{"topic":"t","body":"b"}')
        gantrymq("store", "ingest", other, tmp_path / "one.jsonl", "--set", "mappedFileSizeCommitLog=4096")
        refused = gantrymq(*words, other)
        assert refused.code == 3
        assert "other file size: the log has files of 4096 bytes, the master's of 65536" in refused.err
    logs = [
        b"".join(file.read_bytes() for file in sorted((tmp_path / name / "commitlog").iterdir()))
        for name in ("store", "copy")
    ]
    assert logs[0][: last["maxOffset"]] == logs[1][: last["maxOffset"]]
    assert gantrymq("store", "verify", copy).code == 0


@pytest.mark.parametrize("rate", ["0", "12", "fast", "1t"])
def test_bad_rate_is_a_usage_error(rate: str, tmp_path: Path, gantrymq: Run) -> None:
    refused = gantrymq("mirror", "-n", "127.0.0.1:1", "--broker", "b", "--store", tmp_path, "--rate", rate)
    assert (refused.code, "bytes a second" in refused.err) == (2, True)
