"""Reads the input of ``produce``, sends it, and reports the outcome of each message.

Input that has arrived is sent at once. Before the command waits for more input, it waits for the acknowledgements of
all messages under way. So a slow pipe (``tail -f``) is reported line by line, and a fast one keeps many requests under
way.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from io import BufferedReader

import typer

from gantrymq.cli.input_lines import read_lines
from gantrymq.cli.json_lines import JsonLines
from gantrymq.cli.stop_signals import Interrupted, StopSignals
from gantrymq.cli.streams.messages_in import InputMessage, RejectedLine, Template, json_reader, read_all, text_reader
from gantrymq.cli.streams.sending import Fate, Outcome, Sender
from gantrymq.cli.terminal import FINDINGS, print_error, warn
from gantrymq.client.producer.producer import Producer
from gantrymq.client.producer.settings import ProducerConfig
from gantrymq.errors import MQClientError
from gantrymq.model.texts import count_text, span_text

_STDIN = "-"
_STDIN_DESCRIPTOR = 0
_JSON_CHARACTERS_A_BYTE = 6  # as \\u001f
_ROOM_BESIDE_BODY = 1 << 18  # keys, properties
_FAILURES_SHOWN = 10
_BLOCK_LINES = 1024  # lines made into messages in one step; with more, all earlier ones would be acknowledged meanwhile

Block = list[InputMessage | RejectedLine]
_FATE_TEXTS = {
    Fate.REJECTED: "not sent",
    Fate.REFUSED: "refused",
    Fate.UNKNOWN: "not acknowledged, may be stored",
    Fate.UNSENT: "not sent after an earlier failure",
}


@dataclass(frozen=True, slots=True)
class Inputs:
    """What to read: ``files``, else stdin. With ``whole`` each file is one message."""

    template: Template
    files: Sequence[str]
    delimiter: bytes
    key_delimiter: bytes | None
    json: bool
    whole: bool

    def blocks(
        self, longest_body: int, stop: StopSignals, before_wait: Callable[[], None]
    ) -> Iterator[tuple[str, Block]]:
        """Yield (file or "", messages) as they arrive. ``before_wait`` is called before a wait for input.

        Raises BadParameter if a file cannot be opened, and Interrupted if a signal arrives during a wait.
        """
        read = json_reader(self.template) if self.json else text_reader(self.template, self.key_delimiter)
        longest = longest_body * (_JSON_CHARACTERS_A_BYTE if self.json else 1) + _ROOM_BESIDE_BODY
        for file in self.files or [_STDIN]:
            name = "" if file == _STDIN else file
            with _open(file) as stream:
                if self.whole:
                    yield name, read_all([_whole(stream, longest)], 1, read)
                    continue
                line = 1

                waiting = partial(_wait, stream, stop, before_wait)
                for lines in read_lines(stream, longest, waiting, self.delimiter):
                    for at in range(0, len(lines), _BLOCK_LINES):
                        block = lines[at : at + _BLOCK_LINES]
                        yield name, read_all(block, line, read)
                        line += len(block)


def _wait(stream: BufferedReader, stop: StopSignals, before_wait: Callable[[], None], begins: bool) -> None:
    if begins and not _is_ready(stream):
        before_wait()
    stop.waiting(begins)


@dataclass(frozen=True, slots=True)
class Sending:
    """How to send: most messages in a request, in order or not, after a failure, and most messages in all."""

    batch: int
    in_order: bool
    keep_going: bool
    count: int | None


def produce_all(config: ProducerConfig, inputs: Inputs, how: Sending, *, results: bool, quiet: bool) -> None:
    """Send the input, and print the account on stderr, also if the input cannot be read or stdout has no reader.

    Raises Exit unless all is acknowledged, GantrymqError if no name server answers, and BrokenPipeError.
    """
    with ExitStack() as stack:
        signals = stack.enter_context(StopSignals())
        producer = stack.enter_context(Producer(config))
        printer = _OutcomePrinter(JsonLines() if results else None)
        sender = Sender(
            producer,
            printer.print,
            batch=how.batch,
            compress_over=config.compress_msg_body_over_howmuch,
            in_order=how.in_order,
            continues=how.keep_going,
        )
        _check_route(producer, inputs.template.topic)
        began_s = time.monotonic()
        try:
            _send_all(config, inputs, how, sender, printer, signals)
        except BaseException:
            printer.stops_early = True
            raise
        finally:
            sender.drain()
            printer.flush()
            _summarize(sender, printer, time.monotonic() - began_s, signals.number, quiet=quiet)
    if signals.number is not None:
        raise typer.Exit(128 + signals.number)
    if printer.has_no_reader:
        raise BrokenPipeError
    if sender.account.failed:
        raise typer.Exit(FINDINGS)


def _check_route(producer: Producer, topic: str | None) -> None:
    """Ask for the topic's route before input is taken. A missing topic is no error: its first message may create it."""
    if topic is not None:
        try:
            producer.queues(topic)
        except MQClientError:
            return


def _send_all(
    config: ProducerConfig, inputs: Inputs, how: Sending, sender: Sender, printer: _OutcomePrinter, signals: StopSignals
) -> None:
    left = how.count

    def settle() -> None:
        sender.drain()
        printer.flush()
        if sender.is_stopped or printer.has_no_reader:
            raise _Stopped

    try:
        for file, block in inputs.blocks(config.max_message_size, signals, settle):
            if file != printer.file:
                sender.drain()  # outcomes are printed with the name of their file
                printer.begin(file)
            used = sender.send(block if left is None else block[:left])
            printer.used(block[:used])
            left = None if left is None else left - used
            if sender.is_stopped or signals.number is not None or printer.has_no_reader:
                raise _Stopped
            if left == 0:
                return
    except (Interrupted, _Stopped):
        printer.stops_early = True


class _Stopped(Exception):
    """Raised to stop: a message failed, a signal arrived, or the reader of the results is gone."""


def _open(file: str) -> BufferedReader:
    try:
        return open(_STDIN_DESCRIPTOR if file == _STDIN else file, "rb", closefd=file != _STDIN)
    except OSError as error:
        raise typer.BadParameter(f"{file}: {error.strerror}") from None


def _whole(stream: BufferedReader, longest: int) -> bytes:
    from gantrymq.cli.input_lines import TOO_LONG

    body = stream.read(longest + 1)
    return body if len(body) <= longest else TOO_LONG


def _is_ready(stream: BufferedReader) -> bool:
    """Whether a read returns without a wait."""
    try:
        return bool(select.select([stream], [], [], 0)[0])
    except (OSError, ValueError):
        return True


class _OutcomePrinter:
    """Prints outcomes: on stdout as JSON lines if asked for, and the first failures on stderr."""

    def __init__(self, out: JsonLines | None) -> None:
        self._out = out
        self._failures = 0
        self.file = ""
        self.last_line = 0
        self.stops_early = self.has_no_reader = False

    def begin(self, file: str) -> None:
        """Note the file whose messages come next."""
        self.file, self.last_line = file, 0

    def used(self, block: Block) -> None:
        """Note that these lines were sent or failed."""
        if block:
            self.last_line = block[-1].line

    def print(self, outcome: Outcome) -> None:
        """Print the outcome of one line of input."""
        if self._out is not None:
            self._write(self._out, outcome)
        if outcome.fate in (Fate.ACKNOWLEDGED, Fate.UNSENT):
            return
        self._failures += 1
        if self._failures <= _FAILURES_SHOWN:
            print_error(f"{self._lines_text(outcome.lines)}: {_FATE_TEXTS[outcome.fate]}: {outcome.error}")

    def flush(self) -> None:
        """Write what is buffered."""
        if self._out is not None:
            with self._unless_broken():
                self._out.flush()

    def _write(self, out: JsonLines, outcome: Outcome) -> None:
        with self._unless_broken():
            for line in _result_lines(outcome):
                out.write({**({"file": self.file} if self.file else {}), **line})

    @contextmanager
    def _unless_broken(self) -> Iterator[None]:
        """Run the block. If the reader of stdout is gone, stop printing results.

        Messages under way are still waited for and counted.
        """
        try:
            yield
        except BrokenPipeError:
            self._out, self.has_no_reader = None, True

    def _lines_text(self, lines: Sequence[int]) -> str:
        text = f"line {lines[0]}" if len(lines) == 1 else f"lines {lines[0]} to {lines[-1]}"
        return f"{self.file} {text}" if self.file else text


def _result_lines(outcome: Outcome) -> Iterator[dict[str, object]]:
    result = outcome.result
    if result is None:
        error = {"error": outcome.error} if outcome.error else {}
        topic = {} if outcome.topic is None else {"topic": outcome.topic}
        for line in outcome.lines:
            yield {"line": line, "status": outcome.fate.upper(), **topic, **error}
        return
    ids, offset_ids = result.msg_id.split(","), result.offset_msg_id.split(",")
    for number, line in enumerate(outcome.lines):
        yield {
            "line": line,
            "status": result.status.value,
            "topic": outcome.topic,
            "brokerName": result.queue.broker_name,
            "queueId": result.queue.queue_id,
            "queueOffset": result.queue_offset + number,
            "msgId": ids[number] if number < len(ids) else None,
            "offsetMsgId": offset_ids[number] if number < len(offset_ids) else None,
        }


def _summarize(sender: Sender, printer: _OutcomePrinter, took_s: float, signal: int | None, *, quiet: bool) -> None:
    account = sender.account
    for status, count in account.not_ok.items():
        warn(f"{count_text(count, 'message')} with {status.value}: stored, but not yet as safe as configured")
    if quiet and not account.failed and not printer.stops_early:
        return
    rate = f" in {span_text(took_s * 1000)}, {account.acknowledged / took_s:,.0f} a second" if took_s > 0 else ""
    parts = [f"{count_text(account.acknowledged, 'message')} acknowledged{rate if account.acknowledged else ''}"]
    parts += [
        f"{count:,} {_FATE_TEXTS[fate]}" for fate, count in account.fates.items() if count and fate in _FATE_TEXTS
    ]
    if printer.stops_early:
        position = f"{printer.file} line {printer.last_line}" if printer.file else f"line {printer.last_line}"
        parts.append(f"the input after {position} was not sent" if printer.last_line else "no input was sent")
    print_error(f"{'interrupted: ' if signal is not None else ''}{'; '.join(parts)}")
