"""``gantrymq produce``."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gantrymq.cli.client_keys import ClientKeys, read_client_keys
from gantrymq.cli.connection import ClusterConnection, connects
from gantrymq.cli.options import moment_ms, queue_number, whole_number
from gantrymq.cli.streams.escapes import delimiter
from gantrymq.client.producer.compression import CompressionType
from gantrymq.model.spans import parse_span_ms

if TYPE_CHECKING:
    from gantrymq.cli.streams.messages_in import QueueNumber, Template
    from gantrymq.client.producer.settings import ProducerConfig

    Codec = str
else:  # the choices of --compress: all that a producer has, and none
    Codec = StrEnum("Codec", {name: name.lower() for name in (*CompressionType.__members__, "NONE")})

GROUP = "gantrymq-produce"
_NEVER_BYTES = 0x7FFFFFFF


def span_ms(text: str) -> int:
    """A parser of spans: ``500``, ``500ms``, ``10s``, ``5m``, ``2h`` or ``1d``. Returns milliseconds."""
    span = parse_span_ms(text, default_unit="ms")
    if span is None:
        raise typer.BadParameter(f"{text!r} is no span like 500ms, 10s, 5m, 2h or 1d")
    return span


def numbered_queue(text: str) -> QueueNumber:
    """A parser of queues: ``N`` or ``BROKER:N``."""
    from gantrymq.cli.streams.messages_in import QueueNumber

    broker, _, number = text.rpartition(":")
    return QueueNumber(queue_number(number), broker or None)


Words = Annotated[
    list[str] | None, typer.Argument(metavar="TOPIC [FILE]...", help="The topic, then files.", show_default=False)
]
Topic = Annotated[
    str | None, typer.Option("-t", "--topic", metavar="TOPIC", help="The topic. All arguments are then files.")
]
Lines = Annotated[bool, typer.Option("-l", "--lines", help="Each line of a FILE is a message.")]
Json = Annotated[bool, typer.Option("-J", "--json", help="Each line is a JSON object.")]
Delimiter = Annotated[
    bytes, typer.Option("-D", metavar="TEXT", parser=delimiter, help="What ends a line.", show_default=r"\n")
]
KeyDelimiter = Annotated[
    bytes | None,
    typer.Option("-K", metavar="TEXT", parser=delimiter, help="Separates the keys of a line from its body."),
]
Keys = Annotated[list[str] | None, typer.Option("-k", "--key", metavar="KEY", help="A key of each message.")]
Tag = Annotated[str, typer.Option("-g", "--tag", metavar="TAG", help="The tag.", show_default=False)]
Properties = Annotated[
    list[str] | None, typer.Option("-H", "--property", metavar="NAME=VALUE", help="A property of each message.")
]
Queue = Annotated[
    Any, typer.Option("-p", "--queue", metavar="[BROKER:]N", parser=numbered_queue, help="Only to this queue.")
]
DelayLevel = Annotated[int, typer.Option("--delay-level", metavar="N", min=0, help="Deliver after this delay level.")]
Delay = Annotated[
    int | None, typer.Option("--delay", metavar="SPAN", parser=span_ms, help="Deliver after 500ms, 10s, 5m, 2h, 1d.")
]
DeliverAt = Annotated[
    int | None, typer.Option("--deliver-at", metavar="TIME", parser=moment_ms, help="Deliver at: ms or ISO 8601.")
]
Count = Annotated[
    int | None, typer.Option("-c", "--count", metavar="N", parser=whole_number(1), help="Stop after N messages.")
]
KeepGoing = Annotated[
    bool, typer.Option("-E", "--keep-going", help="Continue after a message that failed, instead of stopping.")
]
Compress = Annotated[
    Codec | None, typer.Option("-z", "--compress", help="For bodies from compressMsgBodyOverHowmuch on (4096 bytes).")
]
Batch = Annotated[int, typer.Option("--batch", metavar="N", min=1, max=4096, help="Most messages in one request.")]
InOrder = Annotated[
    bool, typer.Option("--in-order", help="One request at a time, so that a queue has the order of the input.")
]
Group = Annotated[str, typer.Option("--group", metavar="GROUP", help="The producer group.")]
Results = Annotated[bool, typer.Option("--results", help="Print a JSON line with the outcome of each message.")]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="Print no summary if all messages are acknowledged.")]


@connects
def produce(
    connection: ClusterConnection,
    words: Words = None,
    topic: Topic = None,
    lines: Lines = False,
    json: Json = False,
    delimit: Delimiter = b"\n",
    key_delimiter: KeyDelimiter = None,
    key: Keys = None,
    tag: Tag = "",
    header: Properties = None,
    queue: Queue = None,
    delay_level: DelayLevel = 0,
    delay: Delay = None,
    deliver_at: DeliverAt = None,
    count: Count = None,
    keep_going: KeepGoing = False,
    codec: Compress = None,
    batch: Batch = 256,
    in_order: InOrder = False,
    group: Group = GROUP,
    results: Results = False,
    quiet: Quiet = False,
    keys: ClientKeys = None,
) -> None:
    r"""Send lines of stdin, JSON lines, or files as messages.

    Each line of stdin is a message; each FILE is one, or with -l each of its
    lines. A line of --json is an object: body (text) or bodyBase64, and
    optionally topic, tags, keys (a list), properties, queueId, brokerName,
    delayLevel, delayMs, deliverMs, flag. Lines of consume --json are such
    objects. Stderr says how many messages were acknowledged and which were
    not. The exit code is 1 if there are any.

    Examples of use:

        gantrymq produce orders -n 127.0.0.1:9876 < lines.txt
        echo 4711:paid | gantrymq produce orders -K: -g paid -H region=eu
        gantrymq produce orders -p 0 --in-order -l lines.txt
        gantrymq produce orders --delay 10m invoice.pdf
        gantrymq consume orders -e --json | gantrymq produce copies --json
    """
    from gantrymq.cli.streams.producing import Inputs, Sending, produce_all

    topic, files = _topic_and_files(topic, words or [], json=json)
    if json and key_delimiter is not None:
        raise typer.BadParameter("-K is for lines of text; a JSON line has keys")
    template = _template(topic, (tag, key), header, queue, (delay_level or None, delay, deliver_at))
    config = _config(connection, group, codec, keys)
    inputs = Inputs(template, files, delimit, key_delimiter, json=json, whole=bool(files) and not (lines or json))
    sending = Sending(batch, in_order=in_order, keep_going=keep_going, count=count)
    produce_all(config, inputs, sending, results=results, quiet=quiet)


def _topic_and_files(topic: str | None, words: list[str], *, json: bool) -> tuple[str | None, list[str]]:
    """The topic and the files. With ``-t`` all arguments are files. JSON lines may name topics."""
    if topic is None and words:
        topic, words = words[0], words[1:]
    if topic is None and not json:
        raise typer.BadParameter("no topic: gantrymq produce TOPIC")
    return topic, words


def _template(
    topic: str | None,
    tag_and_keys: tuple[str, list[str] | None],
    header: list[str] | None,
    queue: QueueNumber | None,
    delays: tuple[int | None, int | None, int | None],
) -> Template:
    from gantrymq.cli.streams.messages_in import Template
    from gantrymq.model.message import PROPERTY_TIMER_DELAY_MS, PROPERTY_TIMER_DELIVER_MS

    level, delay_ms, deliver_ms = delays
    if sum(delay is not None for delay in delays) > 1:
        raise typer.BadParameter("--delay-level, --delay and --deliver-at exclude each other")
    properties = {}
    for text in header or ():
        name, separator, value = text.partition("=")
        if not separator or not name:
            raise typer.BadParameter(f"-H {text!r} is not NAME=VALUE")
        properties[name] = value
    for name, time_ms in ((PROPERTY_TIMER_DELAY_MS, delay_ms), (PROPERTY_TIMER_DELIVER_MS, deliver_ms)):
        if time_ms is not None:
            properties[name] = str(time_ms)
    tag, keys = tag_and_keys
    return Template(topic, tag, tuple(keys or ()), properties, level or 0, queue)


def _config(connection: ClusterConnection, group: str, codec: Codec | None, keys: list[str] | None) -> ProducerConfig:
    from gantrymq.client.producer.settings import ProducerConfig

    settings: dict[str, Any] = {**connection.settings, "producer_group": group}
    if codec == "none":
        settings["compress_msg_body_over_howmuch"] = _NEVER_BYTES
    elif codec is not None:
        settings["compression_type"] = codec.upper()
    return ProducerConfig(connection.name_servers, **{**settings, **read_client_keys(ProducerConfig, keys)})
