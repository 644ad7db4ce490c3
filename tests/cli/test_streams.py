"""The parts of `produce` and `consume` without a broker: splitting, reading, positions, formats, and the account."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from io import BufferedReader
from typing import Any, cast

import pytest
import typer
from hypothesis import example, given
from hypothesis import strategies as st

from gantrymq.cli.input_lines import TOO_LONG, read_lines
from gantrymq.cli.produce import numbered_queue, span_ms
from gantrymq.cli.streams.escapes import delimiter, unescape
from gantrymq.cli.streams.formats import TOKENS, BodyAs, Ready, compile_format, escape_body
from gantrymq.cli.streams.messages_in import (
    InputMessage,
    QueueNumber,
    RejectedLine,
    Template,
    json_reader,
    read_all,
    text_reader,
)
from gantrymq.cli.streams.positions import Position, PositionKind, PositionSpan, read_span
from gantrymq.cli.streams.printing import json_piece
from gantrymq.cli.streams.sending import Fate, Outcome, Sender
from gantrymq.cli.streams.sources import Arrived, Filter
from gantrymq.client.producer.producer import Producer
from gantrymq.client.requests.send_result import SendResult, SendStatus
from gantrymq.errors import FilterSyntaxError, MQBrokerError, MQClientError, RemotingTimeoutError
from gantrymq.format.record import body_crc
from gantrymq.model.host import Host
from gantrymq.model.message import Message, StoredMessage
from gantrymq.model.message_queue import MessageQueue

# Input


class Chunks:
    """A stream that arrives in pieces."""

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self._pieces: Iterator[bytes] = iter([piece for piece in pieces if piece])

    def read1(self, size: int) -> bytes:
        return next(self._pieces, b"")


def split(pieces: Sequence[bytes], delimiter: bytes, longest: int = 100) -> list[bytes]:
    stream = cast(BufferedReader, Chunks(pieces))
    return [line for lines in read_lines(stream, longest, lambda begins: None, delimiter) for line in lines]


@given(
    st.lists(st.text("ab|\n", max_size=5).map(str.encode), max_size=8),
    st.sampled_from([b"\n", b"|", b"ab", b"||", b"aab"]),
)
@example([b"x|", b"|y"], b"||")
def test_input_splits_alike_for_any_chunking(pieces: list[bytes], delimiter: bytes) -> None:
    whole = b"".join(pieces)
    expected = whole.split(delimiter)
    assert split(pieces, delimiter) == (expected if expected[-1] else expected[:-1])


def test_too_long_line_is_dropped_and_next_is_read() -> None:
    assert split([b"12345", b"67890", b"123\nnext\n"], b"\n", 9) == [TOO_LONG, b"next"]
    [unusable] = read_all([TOO_LONG], 7, text_reader(Template("T"), None))
    assert unusable == RejectedLine(7, "it is too long for any message")


def test_keys_of_text_line_are_added_to_options_of_command() -> None:
    template = Template("T", "paid", ("all",), {"region": "eu"}, 3, QueueNumber(1))
    read = text_reader(template, b"::")
    [one, two, three] = read_all([b"a b::body::rest", b"no key", b"k::"], 1, read)
    assert isinstance(one, InputMessage)
    expected = Message("T", b"body::rest", 0, "paid", ("all", "a", "b"), {"region": "eu"}, 3)
    assert one == InputMessage(1, expected, QueueNumber(1))
    assert isinstance(two, InputMessage)
    assert (two.message.body, two.message.keys) == (b"no key", ("all",))
    assert three == RejectedLine(3, "the body is empty: RocketMQ sends no such message")
    with pytest.raises(ValueError, match="the key is not UTF-8"):
        read(b"\xff::x")


PLAIN = Template("T")


def json_message(template: Template = PLAIN, **fields: Any) -> Message:
    message, _ = json_reader(template)(json.dumps(fields).encode())
    return message


def test_json_line_sets_all_fields_of_message() -> None:
    template = Template("T", "default", ("k",), {"a": "1", "b": "1"}, 0, QueueNumber(7))
    assert json_message(template, body="ä") == Message("T", "ä".encode(), 0, "default", ("k",), {"a": "1", "b": "1"})
    fields = {
        "bodyBase64": "AP8=",
        "tags": "t",
        "keys": ["x", "y"],
        "properties": {"b": "2"},
        "delayLevel": 2,
        "flag": 5,
    }
    expected = Message("T", b"\0\xff", 0, "t", ["x", "y"], {"a": "1", "b": "2"}, 2, flag=5)
    assert json_message(template, **fields) == expected
    assert json_message(body="x", delayMs=5).properties == {"TIMER_DELAY_MS": "5"}
    assert json_message(body="x", deliverMs=5).properties == {"TIMER_DELIVER_MS": "5"}
    assert json_message(Template(None), topic="own", body="x").topic == "own"
    read = json_reader(template)
    assert read(b'{"body":"x","queueId":2,"brokerName":"b"}')[1] == QueueNumber(2, "b")
    assert read(b'{"body":"x"}')[1] == QueueNumber(7)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"", "the line is empty"),
        (b"[]", "Expected `object`"),
        (b'{"body":"x","colour":1}', "unknown field"),
        (b'{"body":"x","bodyBase64":"AA=="}', "exclude each other"),
        (b'{"body":null}', "either body or bodyBase64"),
        (b'{"body":""}', "the body is empty"),
        (b'{"body":"x","delayMs":-1}', ">= 0"),
        (b'{"body":"x","delayMs":1,"delayLevel":1}', "exclude each other"),
        (b'{"body":"x","crcOk":false}', "damaged"),
        (b'{"body":"x"}', "names no topic"),
    ],
)
def test_wrong_json_line_is_refused_with_reason(line: bytes, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        json_reader(Template(None if "topic" in problem else "T"))(line)


def test_produce_ignores_fields_of_stored_message() -> None:
    """A copy must not be delayed again, go to the queue of the original, or count as half of a transaction."""
    own = {"region": "eu", "UNIQ_KEY": "1", "TAGS": "t", "KEYS": "k"}
    of_the_store = {"DELAY": "3", "TRAN_MSG": "true", "CLUSTER": "c", "REAL_TOPIC": "T", "TIMER_OUT_MS": "1"}
    line = json_piece(to_terminal=False)(READY)
    fields = json.loads(line) | {"properties": own | of_the_store, "queueId": 99}
    message, queue = json_reader(Template("copy"))(json.dumps(fields).encode())
    assert (message.topic, message.properties, queue) == ("copy", own, None)


@pytest.mark.parametrize(
    ("text", "ms"), [("500", 500), ("500ms", 500), ("10s", 10_000), ("2h", 7_200_000), ("1d", 86_400_000)]
)
def test_time_span_with_unit_is_parsed(text: str, ms: int) -> None:
    assert span_ms(text) == ms


@pytest.mark.parametrize("text", ["", "s", "-1s", "1w", "1.5s", "1 s", "10sm"])
def test_malformed_time_span_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="is no span"):
        span_ms(text)


def test_queue_option_accepts_number_with_or_without_broker() -> None:
    assert numbered_queue("3") == QueueNumber(3)
    assert numbered_queue("broker-a:3") == QueueNumber(3, "broker-a")
    with pytest.raises(typer.BadParameter):
        numbered_queue("broker-a:")


def test_format_escapes_equal_those_of_kcat() -> None:
    assert unescape(r"a\t\\n\n\x41\0é") == b"a\t\\n\nA\0" + "é".encode()
    for wrong in (r"\q", "\\", r"\x4", r"\xzz"):
        with pytest.raises(typer.BadParameter, match="an escape is one of"):
            unescape(wrong)
    with pytest.raises(typer.BadParameter, match="not empty"):
        delimiter("")


# Positions


@pytest.mark.parametrize(
    ("texts", "span"),
    [
        ([], PositionSpan()),
        (["beginning"], PositionSpan(Position(PositionKind.BEGINNING))),
        (["end"], PositionSpan(Position(PositionKind.END))),
        (["stored"], PositionSpan()),
        (["-10"], PositionSpan(Position(PositionKind.TAIL, 10))),
        (["4711"], PositionSpan(Position(PositionKind.OFFSET, 4711))),
        (["@1000", "e@2000"], PositionSpan(Position(PositionKind.TIME, 1000), 2000)),
        (["s@1970-01-01T00:00:01"], PositionSpan(Position(PositionKind.TIME, 1000))),
        (["e@5"], PositionSpan(None, 5)),
    ],
)
def test_span_of_positions_is_parsed(texts: list[str], span: PositionSpan) -> None:
    assert read_span(texts) == span


@pytest.mark.parametrize("texts", [["first"], ["--1"], ["@"], ["1", "2"], ["e@1", "e@2"], ["-"], ["1.5"]])
def test_malformed_position_is_refused(texts: list[str]) -> None:
    with pytest.raises(typer.BadParameter):
        read_span(texts)


def test_position_option_accepts_offset_of_queue() -> None:
    kinds = {
        PositionKind.BEGINNING: 10,
        PositionKind.END: 20,
        PositionKind.TAIL: 17,
        PositionKind.OFFSET: 3,
        PositionKind.TIME: 103,
    }
    assert {kind: Position(kind, 3).offset(10, 20, lambda time_ms: time_ms + 100) for kind in kinds} == kinds
    assert Position(PositionKind.TAIL, 50).offset(10, 20, lambda time_ms: 0) == 10


# Printing

HOST = Host(bytes((127, 0, 0, 1)), 10911)
PROPERTIES = {"KEYS": "k1 k2", "TAGS": "tag", "UNIQ_KEY": "ID", "own": "1", "x": "y"}
BODY = b"body\x1b[31m\n\x80"
STORED = StoredMessage(*("topic", 3, 7, 99, 200, 0, 0, 1000, HOST, 2000, HOST, 2, 0, body_crc(BODY), BODY, PROPERTIES))
READY = Ready(Arrived(STORED, "broker-a"), STORED.body)


def printed(text: str, body_as: BodyAs = BodyAs.RAW, *, to_terminal: bool = False) -> bytes:
    return compile_format(text, body_as, to_terminal=to_terminal)(READY)


def test_format_token_prints_its_field() -> None:
    expected = {
        "t": b"topic", "q": b"3", "o": b"7", "b": b"broker-a", "k": b"k1 k2", "g": b"tag", "s": STORED.body, "S": b"11",
        "R": b"\0\0\0\x0b", "T": b"2000", "B": b"1000", "h": b"own=1,x=y", "i": b"ID", "P": b"99", "r": b"2",
        "p": b"KEYS=k1 k2,TAGS=tag,UNIQ_KEY=ID,own=1,x=y", "I": b"7F00000100002A9F0000000000000063",
    }  # fmt: skip
    assert {token: printed(f"%{token}") for token in TOKENS} == expected
    assert printed(r"100%%\t%q@%o\n") == b"100%\t3@7\n"
    assert printed("%s", BodyAs.HEX) == STORED.body.hex().encode()
    assert printed("%s", BodyAs.BASE64) == b"Ym9keRtbMzFtCoA="
    for wrong in ("%z", "100%", r"\q"):
        with pytest.raises(typer.BadParameter):
            printed(wrong)


def test_control_characters_of_message_do_not_reach_terminal() -> None:
    assert printed("%s|", to_terminal=True) == "body·[31m\n\ufffd|".encode()
    assert printed(r"%t\x1b[0m", to_terminal=True) == b"topic\x1b[0m"  # the format is the user's own
    assert escape_body("plain täxt".encode()) == "plain täxt".encode()
    assert escape_body("a\tb\r\n\u202ec\u009b".encode()) == "a\tb·\n·c·".encode()
    odd = Ready(Arrived(STORED), "\u009b \u202e".encode())
    line = json_piece(to_terminal=True)(odd)
    assert line.isascii()
    assert json.loads(line) == json.loads(json_piece(to_terminal=False)(odd))


def test_local_filter_compares_tags_and_properties() -> None:
    assert [Filter(text).takes()(STORED) for text in ("*", "tag", "a || tag", "ta")] == [True, True, True, False]
    assert [Filter(text, "SQL92").evaluates()(STORED) for text in ("own = '2'", "own = '1'", "nothing > 1")] == [
        *(False, True, False)
    ]
    with pytest.raises(FilterSyntaxError):
        Filter("own =", "SQL92").evaluates()


# Sending

QUEUES = tuple(MessageQueue("T", broker, number) for broker, number in [("a", 0), ("a", 1), ("b", 0)])
OK = SendResult(SendStatus.SEND_OK, "id", QUEUES[0], 0, "offset-id")
Verdict = Callable[[list[Message]], SendResult | Exception]


class Recorder:
    """A producer that answers as ``verdict`` says, and keeps what it was asked to send."""

    def __init__(self, verdict: Verdict = lambda messages: OK) -> None:
        self.requests: list[list[bytes]] = []
        self._verdict = verdict

    def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        return QUEUES

    def send_async(self, message: Message, queue: MessageQueue | None) -> Future[SendResult]:
        return self.send_batch_async([message], queue)

    def send_batch_async(self, messages: list[Message], queue: MessageQueue | None) -> Future[SendResult]:
        answer = self._verdict(messages)
        if isinstance(answer, MQClientError):
            raise answer
        self.requests.append([bytes(message.body) for message in messages])
        future: Future[SendResult] = Future()
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result(answer)
        return future


def sent(
    recorder: Recorder, lines: Sequence[InputMessage | RejectedLine], *, batch: int = 3, continues: bool = False
) -> tuple[Sender, int, list[tuple[list[int], Fate]]]:
    outcomes: list[Outcome] = []
    producer = cast(Producer, recorder)
    sender = Sender(producer, outcomes.append, batch=batch, compress_over=100, in_order=False, continues=continues)
    used = sender.send(lines)
    sender.drain()
    return sender, used, [(list(one.lines), one.fate) for one in outcomes]


def lines(*bodies: bytes, **more: Any) -> list[InputMessage | RejectedLine]:
    return [InputMessage(number, Message("T", body, **more), None) for number, body in enumerate(bodies, 1)]


def test_consecutive_messages_to_same_queue_share_request() -> None:
    recorder = Recorder()
    many = lines(b"1", b"2", b"3", b"4", b"x" * 100, b"6")
    many += [InputMessage(7, Message("T", b"7", delay_level=1), None), InputMessage(8, Message("T", b"8"), None)]
    many += [InputMessage(9, Message("T", b"9"), QueueNumber(1)), InputMessage(10, Message("U", b"10"), None)]
    many += [InputMessage(11, Message("U", b"11", properties={"TIMER_DELAY_MS": "5"}), None)]
    sender, used, _ = sent(recorder, many)
    assert recorder.requests == [
        [b"1", b"2", b"3"], [b"4"], [b"x" * 100], [b"6"], [b"7"], [b"8"], [b"9"], [b"10"], [b"11"],
    ]  # fmt: skip
    assert (sender.account.acknowledged, sender.account.failed, used) == (11, 0, 11)


def refuse(body: bytes, error: Exception) -> Verdict:
    return lambda messages: error if any(message.body == body for message in messages) else OK


REFUSED = MQBrokerError("a:1", 13, "MESSAGE_ILLEGAL", "too odd")


def test_refused_batch_is_sent_again_message_by_message() -> None:
    recorder = Recorder(refuse(b"2", REFUSED))
    sender, used, outcomes = sent(recorder, lines(b"1", b"2", b"3", b"4"), continues=True)
    fates = [([1], Fate.ACKNOWLEDGED), ([2], Fate.REFUSED), ([3], Fate.ACKNOWLEDGED), ([4], Fate.ACKNOWLEDGED)]
    assert (outcomes, used) == (fates, 4)
    assert (sender.account.acknowledged, sender.account.failed, sender.is_stopped) == (3, 1, False)


def test_refused_batch_part_stops_sender() -> None:
    sender, used, outcomes = sent(Recorder(refuse(b"2", REFUSED)), lines(b"1", b"2", b"3", b"4", b"5", b"6", b"7"))
    assert outcomes[:3] == [([1], Fate.ACKNOWLEDGED), ([2], Fate.REFUSED), ([3], Fate.UNSENT)]
    assert sum(len(numbers) for numbers, _ in outcomes) == used
    assert sender.is_stopped


def test_send_without_answer_is_reported_as_possibly_stored() -> None:
    error = RemotingTimeoutError("a:1", "no answer")
    sender, _, outcomes = sent(Recorder(refuse(b"1", error)), lines(b"1", b"2"))
    assert outcomes == [([1, 2], Fate.UNKNOWN)]
    assert (sender.account.failed, sender.is_stopped) == (2, True)


def test_message_refused_by_client_is_sent_in_no_batch() -> None:
    recorder = Recorder(refuse(b"2", MQClientError("no")))
    _, _, outcomes = sent(recorder, [*lines(b"1", b"2", b"3"), RejectedLine(4, "why")], continues=True)
    fates = [([1], Fate.ACKNOWLEDGED), ([2], Fate.REJECTED), ([3], Fate.ACKNOWLEDGED), ([4], Fate.REJECTED)]
    assert (outcomes, recorder.requests) == (fates, [[b"1"], [b"3"]])


@pytest.mark.parametrize(
    ("queue", "fate"),
    [((1, None), "acknowledged"), ((0, None), "rejected"), ((0, "b"), "acknowledged"), ((9, None), "rejected")],
)
def test_ambiguous_queue_number_needs_broker(queue: tuple[int, str | None], fate: str) -> None:
    _, _, outcomes = sent(Recorder(), [InputMessage(1, Message("T", b"x"), QueueNumber(*queue))])
    assert outcomes == [([1], Fate(fate))]


def test_send_status_other_than_ok_is_counted_as_stored() -> None:
    late = SendResult(SendStatus.FLUSH_DISK_TIMEOUT, "id", QUEUES[0], 0, "offset-id")
    sender, _, _ = sent(Recorder(lambda messages: late), lines(b"1", b"2"))
    assert (sender.account.acknowledged, sender.account.not_ok) == (2, {SendStatus.FLUSH_DISK_TIMEOUT: 2})
