"""`produce` and `consume` at our own broker: what goes in comes out, what is committed, and how they end."""

from __future__ import annotations

import json
import re
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_cases import Outcome, Run, start

from gantrymq import EmbeddedBroker, Message, Producer
from gantrymq.cli.streams.printing import Printer
from gantrymq.model.message_queue import MessageQueue
from store_cases import await_dispatch, open_store

PATIENCE_S = 60


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(settings={"enablePropertyFilter": "true"}) as running:
        yield running


@pytest.fixture(autouse=True)
def surroundings(broker: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name server as an environment has it, no profiles, and a directory for files."""
    monkeypatch.setenv("NAMESRV_ADDR", broker.namesrv)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("GANTRYMQ_PROFILE", raising=False)
    monkeypatch.chdir(tmp_path)


def produced(gantrymq: Run, topic: str, lines: bytes, *options: object) -> Outcome:
    Path("lines").write_bytes(lines)
    return gantrymq("produce", topic, "-l", "lines", *options)


def fill(broker: EmbeddedBroker, topic: str, count: int, queues: int = 1) -> None:
    """Messages 0 … count - 1 in turn to the queues; every third has the tag c, each the property n."""
    broker.create_topic(topic, queues)
    with Producer(broker.namesrv) as producer:
        for number in range(count):
            tag, properties = "abc"[number % 3], {"n": str(number)}
            producer.send(
                Message(topic, b"%d" % number, tags=tag, properties=properties),
                MessageQueue(topic, "broker-a", number % queues),
            )
    broker.wait_for_messages(topic, count)


def test_produced_lines_are_consumed_unchanged(gantrymq: Run, broker: EmbeddedBroker) -> None:
    broker.create_topic("Lines", 2)
    outcome = produced(
        gantrymq,
        "Lines",
        b"k1::one\n\xff\x00two\nk2 k3::three",
        "-K",
        "::",
        "-g",
        "paid",
        "-H",
        "region=eu",
        "-k",
        "all",
        "-p",
        1,
    )
    assert (outcome.code, outcome.out) == (0, b"")
    assert outcome.err.startswith("gantrymq: 3 messages acknowledged in ")
    broker.wait_for_messages("Lines", 3)
    outcome = gantrymq("consume", "Lines", "-e", "-f", r"%q %o %k %g %h %s\n")
    rows = [
        b"1 0 all k1 paid region=eu one",
        b"1 1 all paid region=eu \xff\x00two",
        b"1 2 all k2 k3 paid region=eu three",
    ]
    assert (outcome.code, outcome.err, outcome.out.splitlines()) == (0, "", rows)
    assert gantrymq("consume", "Lines", "-e", "-K", ":", "-D", "|", "--body", "hex").out == (
        b"all k1:6f6e65|all:ff0074776f|all k2 k3:7468726565|"
    )


def test_produce_sends_files_to_topic_of_option(gantrymq: Run, broker: EmbeddedBroker) -> None:
    broker.create_topic("Files", 1)
    Path("a").write_bytes(b"one\ntwo\n")
    Path("b").write_bytes(b"\0")
    outcome = gantrymq("produce", "-t", "Files", "a", "b", "--results", "-q")
    assert (outcome.code, outcome.err) == (0, "")
    assert [(one["file"], one["line"], one["queueOffset"], one["status"]) for one in outcome.lines] == [
        ("a", 1, 0, "SEND_OK"),
        ("b", 1, 1, "SEND_OK"),
    ]
    broker.wait_for_messages("Files", 2)
    assert gantrymq("consume", "-t", "Files", "-e", "-D", "").out == b"one\ntwo\n\0"
    missing = gantrymq("produce", "Files", "-l", "a", "missing")
    account, error = missing.err.splitlines()
    assert (missing.code, "missing: No such file" in error) == (2, True)
    assert account.startswith("gantrymq: 2 messages acknowledged in ")


def test_results_are_in_order_and_name_what_is_stored(gantrymq: Run, broker: EmbeddedBroker) -> None:
    broker.create_topic("Results", 1)
    outcome = produced(gantrymq, "Results", b"".join(b"%d\n" % number for number in range(700)), "--results")
    assert [one["line"] for one in outcome.lines] == list(range(1, 701))
    broker.wait_for_messages("Results", 700)
    lines = gantrymq("consume", "Results", "-e", "--json").lines
    stored = {
        line["properties"]["UNIQ_KEY"]: (line["queueOffset"], line["offsetMsgId"], line["body"]) for line in lines
    }
    for result in outcome.lines:
        expected = result["queueOffset"], result["offsetMsgId"], str(result["line"] - 1)
        assert stored[result["msgId"]] == expected


def test_produce_in_order_keeps_order_of_input(gantrymq: Run, broker: EmbeddedBroker) -> None:
    broker.create_topic("Ordered", 1)
    given = b"".join(b"%d\n" % number for number in range(300))
    assert produced(gantrymq, "Ordered", given, "--in-order", "--batch", 7).code == 0
    broker.wait_for_messages("Ordered", 300)
    assert gantrymq("consume", "Ordered", "-e").out == given


@pytest.mark.parametrize(
    ("options", "code", "bodies", "said"),
    [
        ((), 1, [b"one"], "1 message acknowledged in {}; 1 not sent; the input after lines line 2 was not sent"),
        (("-E",), 1, [b"one", b"four"], "2 messages acknowledged in {}; 2 not sent"),
        (("-c", 1), 0, [b"one"], "1 message acknowledged in {}"),
    ],
)
def test_summary_of_produce_counts_messages(
    gantrymq: Run, broker: EmbeddedBroker, options: tuple[object, ...], code: int, bodies: list[bytes], said: str
) -> None:
    topic = f"Account{len(options)}{code}"
    broker.create_topic(topic, 1)
    lines = b'{"body":"one"}\n{"body":""}\n{"body":"x","queueId":99}\n{"body":"four"}\n'
    outcome = produced(gantrymq, topic, lines, "--json", *options)
    broker.wait_for_messages(topic, len(bodies))
    assert (outcome.code, broker.bodies(topic)) == (code, bodies)
    *failures, summary = outcome.err.splitlines()
    begin, _, end = f"gantrymq: {said}".partition("{}")
    assert summary.startswith(begin)
    assert summary.endswith(end)
    wrong = ["lines line 2: not sent: the body is empty", f"lines line 3: not sent: topic {topic} has no queue 99"]
    assert [failure.removeprefix("gantrymq: ").partition(":")[0] for failure in failures] == [
        one.partition(":")[0] for one in wrong[: len(failures)]
    ]
    assert all(want in got for want, got in zip(wrong, failures, strict=False))


def test_too_long_message_fails_alone(gantrymq: Run, broker: EmbeddedBroker) -> None:
    broker.create_topic("Long", 1)
    lines = [{"body": "one"}, {"body": "two", "properties": {"p": "x" * 33_000}}, {"body": "three"}]
    given = b"\n".join(json.dumps(one).encode() for one in lines)
    outcome = produced(gantrymq, "Long", given, "-J", "-E", "--results")
    assert [one["status"] for one in outcome.lines] == ["SEND_OK", "REJECTED", "SEND_OK"]
    assert (outcome.code, len(broker.wait_for_messages("Long", 2))) == (1, 2)


def test_delay_option_uses_levels_of_broker(gantrymq: Run, broker: EmbeddedBroker) -> None:
    broker.create_topic("Delayed", 1)
    for options in (("--delay-level", 3), ("--delay", "30s"), ("--deliver-at", int(time.time() * 1000) + 3_600_000)):
        outcome = produced(gantrymq, "Delayed", b"x", *options)
        assert (outcome.code, broker.bodies("Delayed")) == (0, [])
    broker.clock.advance(15_000)
    broker.wait_for_messages("Delayed", 1)
    broker.clock.advance(20_000)
    broker.wait_for_messages("Delayed", 2)
    assert produced(gantrymq, "Delayed", b"x", "--delay", "1s", "--delay-level", 1).code == 2


def test_consume_into_produce_copies_topic(gantrymq: Run, broker: EmbeddedBroker) -> None:
    fill(broker, "Origin", 30, 3)
    broker.create_topic("Copy", 2)
    outcome = produced(gantrymq, "Copy", gantrymq("consume", "Origin", "-e", "--json").out, "--json")
    assert (outcome.code, len(broker.wait_for_messages("Copy", 30))) == (0, 30)
    parts = [
        sorted(gantrymq("consume", topic, "-e", "-f", r"%s %g %h %i\n").out.splitlines())
        for topic in ("Origin", "Copy")
    ]
    assert parts[0] == parts[1]


def test_namespace_is_absent_from_input_and_output(gantrymq: Run, broker: EmbeddedBroker) -> None:
    broker.create_topic("ns%Named", 1)
    assert produced(gantrymq, "Named", b"x", "--namespace", "ns").code == 0
    broker.wait_for_messages("ns%Named", 1)
    for options in ((), ("-G", "named")):
        outcome = gantrymq("consume", "Named", "--namespace", "ns", "-e", "-f", "%t %s", *options)
        assert (outcome.code, outcome.out) == (0, b"Named x")
    assert committed(broker, "ns%named", "ns%Named") == {0: 1}


# What consume chooses


@pytest.fixture(scope="module")
def filled(broker: EmbeddedBroker) -> str:
    fill(broker, "Chosen", 40, 2)
    return "Chosen"


EVEN, ODD = list(range(0, 40, 2)), list(range(1, 40, 2))


@pytest.mark.parametrize(
    ("options", "numbers"),
    [
        ((), [*EVEN, *ODD]),
        (("-o", "beginning"), [*EVEN, *ODD]),
        (("-o", "end"), []),
        (("-o", "-2"), [36, 38, 37, 39]),
        (("-o", "18"), [36, 38, 37, 39]),
        (("-o", "500"), []),
        (("-o", "@0"), [*EVEN, *ODD]),
        (("-o", "@2100-01-01"), []),
        (("-o", "e@0"), []),
        (("-p", "1"), ODD),
        (("-p", "broker-a:0", "-p", "1", "-o", "-1"), [38, 39]),
        (("-c", "3"), [0, 2, 4]),
        (("-g", "c"), [number for number in [*EVEN, *ODD] if number % 3 == 2]),
        (("--tag", "a || b"), [number for number in [*EVEN, *ODD] if number % 3 != 2]),
        (("--sql", "n > 35 AND TAGS <> 'a'"), [38, 37]),
    ],
)
def test_consume_selects_same_messages_from_cluster_and_store(
    gantrymq: Run, broker: EmbeddedBroker, filled: str, options: tuple[str, ...], numbers: list[int]
) -> None:
    for place in ((), ("--store", broker.store_path)):
        outcome = gantrymq("consume", filled, "-e", *options, *place)
        assert (outcome.code, outcome.err) == (0, "")
        assert [int(line) for line in outcome.out.split()] == numbers, place


def test_consume_with_impossible_options_names_reason(gantrymq: Run, broker: EmbeddedBroker, filled: str) -> None:
    for arguments, code, said in [
        (("Nope", "-e"), 3, "there is no topic Nope; `gantrymq admin topic list`"),
        ((filled, "-p", "7"), 3, "has no queue 7"),
        ((filled, "-o", "x"), 2, "is not beginning, end"),
        ((filled, "-J", "-f", "%s"), 2, "--json has its own shape"),
        ((filled, "--tag", "a", "--sql", "b"), 2, "exclude each other"),
        ((filled, "-G", "g", "-p", "0"), 2, "--queue is for reading without --group"),
        ((filled, "-G", "g", "-o", "-5"), 2, "with --group -o is"),
        ((filled, "-X", "pullBatchSiz=5", "-G", "g"), 2, "pullBatchSize"),
        ((filled, "--sql", "n >", "-e"), 2, "--sql 'n >': the expression ends too early"),
        ((filled, "--tag", "||"), 2, "--tag '||'"),
        ((filled, "--store", broker.store_path, "-G", "g"), 2, "--store takes none"),
        ((filled, "--store", "missing"), 3, "missing"),
        ((), 2, "no topic"),
    ]:
        outcome = gantrymq("consume", *arguments)
        assert (arguments, outcome.code, outcome.out) == (arguments, code, b"")
        assert said in outcome.err, arguments


def test_message_line_has_same_shape_in_all_commands(gantrymq: Run, broker: EmbeddedBroker) -> None:
    """Also of a compressed body: as stored in size, checksum and sysFlag, decompressed in its text."""
    broker.create_topic("Shape", 1)
    body = "long " * 2000
    assert produced(gantrymq, "Shape", body.encode(), "-z", "zstd", "-k", "key").code == 0
    broker.wait_for_messages("Shape", 1)
    [pulled] = gantrymq("consume", "Shape", "-e", "--json").lines
    [grouped] = gantrymq("consume", "Shape", "-e", "--json", "-G", "shape").lines
    [stored] = gantrymq("consume", "Shape", "--json", "--store", broker.store_path).lines
    [shown] = gantrymq("store", "show", broker.store_path, "Shape", "key", "--json").lines
    assert (pulled["body"], pulled["bodyLength"] < len(body)) == (body, True)
    found = gantrymq("admin", "message", "by-key", "Shape", "key", "--json", "-n", broker.namesrv)
    assert (found.code, found.err) == (0, "")
    [printed] = gantrymq("admin", "message", "print", "Shape", "--json", "-n", broker.namesrv).lines
    [by_key] = found.lines
    assert "@Shape@K@key@" in by_key.pop("indexKey")
    assert pulled == grouped == by_key == printed == stored | {"brokerName": "broker-a"}
    assert (list(pulled), stored["brokerName"]) == (list(stored), None)
    assert list(pulled) == list(by_key) == list(printed)
    assert (pulled.pop("msgId"), pulled.pop("offsetMsgId")) == (shown["properties"]["UNIQ_KEY"], shown.pop("msgId"))
    assert pulled == shown | {"brokerName": "broker-a"}
    text = gantrymq("admin", "message", "by-key", "Shape", "key", "-n", broker.namesrv).text
    assert " long long " in text
    again = produced(gantrymq, "Shape", found.out, "--json", "-q")
    assert (again.code, again.err) == (0, "")


def test_damaged_body_is_printed_and_named_and_sets_exit_code(gantrymq: Run, tmp_path: Path) -> None:
    with open_store(path=tmp_path / "store") as store:
        store.put_batch([Message("t", b"one whole body"), Message("t", b"another"), Message("t", b"last")])
        await_dispatch(store)
    [log] = (tmp_path / "store" / "commitlog").iterdir()
    raw = log.read_bytes()
    log.write_bytes(raw.replace(b"another", b"anOther"))
    outcome = gantrymq("consume", "t", "--store", tmp_path / "store", "--json")
    found = [(line["body"], line["crcOk"]) for line in outcome.lines]
    assert found == [("one whole body", True), ("anOther", False), ("last", True)]
    assert (outcome.code, "t, queue 0, offset 1: the body does not have the CRC" in outcome.err) == (1, True)


def documented(title: str) -> list[list[str]]:
    """The keys of each object that a section of docs/cli.md shows."""
    page = (Path(__file__).resolve().parents[2] / "docs" / "cli.md").read_text()
    text = page.split(f"\n## `{title}", 1)[1].split("\n## ", 1)[0]
    text = text.replace('"kind":"message"', '"kind"')
    return [re.findall(r'"(\w+)"', code) for code in re.findall(r"`(\{\"[^`]*\})`", text)]


def test_json_shapes_match_documentation(gantrymq: Run, broker: EmbeddedBroker, filled: str) -> None:
    broker.create_topic("Documented", 1)
    outcome = produced(gantrymq, "Documented", b"x", "--results")
    failed = produced(gantrymq, "Documented", b"x", "--results", "-p", 9)
    acknowledged, refused = documented("produce TOPIC")
    assert [list(line) for line in (*outcome.lines, *failed.lines)] == [["file", *acknowledged], ["file", *refused]]
    [line] = gantrymq("consume", filled, "-c", 1, "--json").lines
    [shape] = documented("consume TOPIC")
    assert list(line) == shape


def test_profile_signs_every_request_with_and_without_tls(gantrymq: Run, tmp_path: Path) -> None:
    accounts = tmp_path / "plain_acl.yml"
    accounts.write_text("accounts:\n- accessKey: operator\n  secretKey: secret-1\n  admin: true\n")
    with EmbeddedBroker(settings={"aclEnable": True, "aclPlainFile": str(accounts)}) as closed:
        path = tmp_path / "gantrymq" / "profile.toml"
        path.parent.mkdir()
        keys = "access_key = 'operator'\nsecret_key = 'secret-1'\n"
        path.write_text(f"[profile.p]\nnamesrv = '{closed.namesrv}'\n{keys}")
        path.chmod(0o600)
        refused = produced(gantrymq, "Guarded", b"x", "-n", closed.namesrv)
        assert (refused.code, "0 messages acknowledged; 1 refused" in refused.err) == (1, True), refused.err
        assert "NO_PERMISSION: No accessKey is configured; give --access-key and --secret-key" in refused.err
        for options in (("--profile", "p"), ("--profile", "p", "--tls")):
            assert produced(gantrymq, "Guarded", b"x", *options).code == 0
        closed.wait_for_messages("Guarded", 2)
        outcome = gantrymq("consume", "Guarded", "-e", "--profile", "p", "--tls")
        assert (outcome.code, outcome.err, outcome.out) == (0, "", b"x\nx\n")
        denied = gantrymq("consume", "Guarded", "-e", "-n", closed.namesrv)
        assert (denied.code, "give --access-key and --secret-key" in denied.err) == (3, True), denied.err


# A group


def committed(broker: EmbeddedBroker, group: str, topic: str) -> dict[int, int]:
    return broker.consumer_offsets(group, topic)


def test_group_continues_after_printed_messages(gantrymq: Run, broker: EmbeddedBroker) -> None:
    fill(broker, "Group", 10)
    assert gantrymq("consume", "Group", "-G", "group", "-c", 3).out == b"0\n1\n2\n"
    assert committed(broker, "group", "Group") == {0: 3}
    assert gantrymq("consume", "Group", "-G", "group", "-e").out == b"".join(
        b"%d\n" % number for number in range(3, 10)
    )
    assert gantrymq("consume", "Group", "-G", "group", "-e").out == b""
    assert committed(broker, "group", "Group") == {0: 10}
    assert gantrymq("consume", "Group", "-G", "filtered", "-e", "-g", "c").out == b"2\n5\n8\n"
    assert committed(broker, "filtered", "Group") == {0: 10}  # also what the filter left out


def test_unflushed_output_is_not_committed(
    gantrymq: Run, broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(broker, "Unflushed", 100)
    flush, flushes = Printer.flush, iter(range(100))

    def breaks(printer: Printer) -> None:
        if next(flushes) == 1:
            raise BrokenPipeError
        flush(printer)

    monkeypatch.setattr(Printer, "flush", breaks)
    with pytest.raises(BrokenPipeError):
        gantrymq("consume", "Unflushed", "-G", "unflushed", "-X", "pullBatchSize=16")
    assert committed(broker, "unflushed", "Unflushed") == {0: 16}


# Processes


def told(child: subprocess.Popen[bytes], lines: int) -> list[bytes]:
    """The next lines of stdout."""
    assert child.stdout is not None
    found = []
    for _ in range(lines):
        ready, _, _ = select.select([child.stdout], [], [], PATIENCE_S)
        assert ready, "nothing came"
        found.append(child.stdout.readline())
    return found


def end(child: subprocess.Popen[bytes]) -> tuple[int, str]:
    _, err = child.communicate(timeout=PATIENCE_S)
    return child.returncode, err.decode()


def test_waiting_consume_ends_when_its_pipe_closes(broker: EmbeddedBroker, filled: str) -> None:
    with start("consume", filled, bufsize=0) as child:
        told(child, 1)
        assert child.stdout is not None
        child.stdout.close()
        child.stdout = None
        assert end(child) == (141, "")


def test_interrupt_commits_printed_messages(broker: EmbeddedBroker) -> None:
    fill(broker, "Interrupted", 5)
    with start("consume", "Interrupted", "-G", "interrupted", bufsize=0) as child:
        told(child, 5)
        child.send_signal(signal.SIGINT)
        assert end(child) == (130, "gantrymq: interrupted after 5 messages\n")
    assert committed(broker, "interrupted", "Interrupted") == {0: 5}


def test_slow_input_is_acknowledged_line_by_line_until_interrupt(broker: EmbeddedBroker) -> None:
    broker.create_topic("Slow", 1)
    with start("produce", "Slow", "--results", bufsize=0) as child:
        assert child.stdin is not None
        for number in range(2):
            child.stdin.write(b"%d\n" % number)
            [line] = told(child, 1)
            assert (json.loads(line)["line"], json.loads(line)["status"]) == (number + 1, "SEND_OK")
        child.send_signal(signal.SIGTERM)
        code, err = end(child)
    assert code == 143
    assert err.startswith("gantrymq: interrupted: 2 messages acknowledged in ")
    assert err.endswith("; the input after line 2 was not sent\n")
    assert broker.bodies("Slow") == [b"0", b"1"]


def test_produce_with_closed_stdout_prints_summary(broker: EmbeddedBroker) -> None:
    broker.create_topic("Unread", 1)
    with start("produce", "Unread", "--results", bufsize=0) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdout.close()
        child.stdout = None
        child.stdin.write(b"one\n")
        assert child.wait(PATIENCE_S) == 141  # although more input may come
        _, err = end(child)
    assert err.startswith("gantrymq: 1 message acknowledged in ")
    assert err.endswith("; the input after line 1 was not sent\n")


def test_pipe_is_read_to_end(process: Run, broker: EmbeddedBroker) -> None:
    broker.create_topic("Pipe", 4)
    outcome = process("produce", "Pipe", input=b"".join(b"%d\n" % number for number in range(5_000)))
    assert (outcome.code, outcome.err.startswith("gantrymq: 5,000 messages acknowledged")) == (0, True)
    assert len(broker.wait_for_messages("Pipe", 5_000)) == 5_000


def test_produce_without_name_server_fails(process: Run, broker: EmbeddedBroker) -> None:
    outcome = process("produce", "T", "-n", "127.0.0.1:1", input=b"x\n")
    assert (outcome.code, "no name server answers: 127.0.0.1:1" in outcome.err) == (3, True)


def test_lines_for_read_only_topic_are_not_sent(gantrymq: Run, broker: EmbeddedBroker) -> None:
    broker.create_topic("ReadOnly", 1)
    assert gantrymq("admin", "topic", "perm", "ReadOnly", "R").code == 0
    outcome = produced(gantrymq, "ReadOnly", b"a")
    assert (outcome.code, "may be stored" in outcome.err) == (1, False)
    assert "not sent: No route info of this topic: ReadOnly: no broker that has it accepts sends; " in outcome.err
    assert gantrymq("admin", "topic", "perm", "ReadOnly", "RW").code == 0  # the remedy of the message
    assert produced(gantrymq, "ReadOnly", b"a").code == 0


def test_consume_of_topic_without_read_permission_fails(gantrymq: Run, broker: EmbeddedBroker) -> None:
    broker.create_topic("WriteOnly", 1)
    assert gantrymq("admin", "topic", "perm", "WriteOnly", "W").code == 0
    consume = ("consume", "WriteOnly", "-e")
    for command in (consume, (*consume, "-G", "readers"), ("admin", "message", "print", "WriteOnly")):
        outcome = gantrymq(*command)
        assert (outcome.code, outcome.out) == (3, b"")
        assert "WriteOnly may not be read; `gantrymq admin topic perm 'WriteOnly' RW` allows it" in outcome.err
    assert gantrymq("admin", "topic", "perm", "WriteOnly", "RW").code == 0
    assert gantrymq("consume", "WriteOnly", "-e").code == 0
