"""``gantrymq consume``."""

from __future__ import annotations

import sys
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from gantrymq.cli.client_keys import ClientKeys, read_client_keys
from gantrymq.cli.connection import ClusterConnection, connects
from gantrymq.cli.options import Settings, whole_number
from gantrymq.cli.produce import numbered_queue
from gantrymq.cli.streams.formats import TOKENS, BodyAs

if TYPE_CHECKING:
    from gantrymq.cli.streams.formats import Piece
    from gantrymq.cli.streams.messages_in import QueueNumber
    from gantrymq.cli.streams.positions import PositionSpan
    from gantrymq.cli.streams.sources import Filter, Source

_ATTEMPTS = 10  # of a request; a broker may be unreachable for half a minute
_FORMAT_HELP = "How a message is printed: " + ", ".join(f"%{token} {text}" for token, (_, text) in TOKENS.items())

Words = Annotated[list[str] | None, typer.Argument(metavar="TOPIC...", help="The topics.", show_default=False)]
Topics = Annotated[list[str] | None, typer.Option("-t", "--topic", metavar="TOPIC", help="A topic, as TOPIC.")]
Offsets = Annotated[
    list[str] | None,
    typer.Option(
        "-o",
        "--offset",
        metavar="POSITION",
        help="Where to begin: beginning (default), end, an offset, -N before the end, @TIME or s@TIME, "
        "stored (with -G: the group's offsets). e@TIME: where to end.",
    ),
]
Exit = Annotated[bool, typer.Option("-e", "--exit", help="Exit at the end of the queues.")]
Count = Annotated[
    int | None, typer.Option("-c", "--count", metavar="N", parser=whole_number(1), help="Exit after N messages.")
]
Group = Annotated[
    str | None,
    typer.Option("-G", "--group", metavar="GROUP", help="Join this group, and commit what was printed."),
]
Queues = Annotated[
    list[Any] | None,
    typer.Option(
        "-p", "--queue", metavar="[BROKER:]N", parser=numbered_queue, help="Only this queue. May be repeated."
    ),
]
Tag = Annotated[
    str | None, typer.Option("-g", "--tag", metavar="TAG", help='Only with this tag, or "A || B".', show_default=False)
]
Sql = Annotated[str | None, typer.Option("--sql", metavar="CONDITION", help="Only if the properties match (SQL92).")]
Format = Annotated[str | None, typer.Option("-f", "--format", metavar="FORMAT", help=_FORMAT_HELP)]
Json = Annotated[bool, typer.Option("-J", "--json", help="Print JSON, one object a line.")]
Delimiter = Annotated[
    str | None, typer.Option("-D", metavar="TEXT", help="Printed after each message.", show_default=r"\n")
]
KeyDelimiter = Annotated[
    str | None, typer.Option("-K", metavar="TEXT", help="Print the keys before a body, and this between them.")
]
Body = Annotated[BodyAs, typer.Option("--body", help="How a body is printed.")]
StorePath = Annotated[
    Path | None, typer.Option("--store", metavar="DIR", help="Read this store directory.", readable=False)
]
Config = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", exists=True, dir_okay=False, help="With --store: a broker.conf."),
]


@partial(connects, unless="store")
def consume(
    connection: ClusterConnection | None,
    words: Words = None,
    topic: Topics = None,
    offset: Offsets = None,
    exits: Exit = False,
    count: Count = None,
    group: Group = None,
    queue: Queues = None,
    tag: Tag = None,
    sql: Sql = None,
    format_: Format = None,
    json: Json = False,
    delimit: Delimiter = None,
    key_delimiter: KeyDelimiter = None,
    body: Body = BodyAs.RAW,
    store: StorePath = None,
    config: Config = None,
    set_: Settings = None,
    keys: ClientKeys = None,
) -> None:
    r"""Print the messages of topics, from a cluster or a store directory.

    Without --group nothing is committed, and no other consumer is affected.
    With it the group's offsets are committed up to what was printed. Follows
    the topics until Ctrl-C, unless -e or -c is given; a store is read to its
    end. On a terminal control characters of messages are printed as dots.
    The exit code is 1 if a message is damaged, or was deleted before it was
    read.

    Examples of use:

        gantrymq consume orders -n 127.0.0.1:9876
        gantrymq consume orders -o -10 -e -f '%T %q@%o %k: %s\n'
        gantrymq consume orders -o @2026-11-24T08:00:00+01:00 -e --json | jq .body
        gantrymq consume orders -G audit --tag 'paid || refunded'
        gantrymq consume orders --store /data/store --sql "region = 'eu'"
    """
    from gantrymq.cli.json_lines import StdoutPieces
    from gantrymq.cli.streams.consuming import consume_all
    from gantrymq.cli.streams.positions import read_span
    from gantrymq.cli.streams.printing import Printer

    topics = [*(topic or ()), *(words or ())]
    if not topics:
        raise typer.BadParameter("no topic: gantrymq consume TOPIC")
    piece = _piece((format_, delimit, key_delimiter), body, json=json)
    span, wanted = read_span(offset or ()), _filter(tag, sql)
    what = _What(topics, tuple(queue or ()), span, wanted, group)
    with ExitStack() as stack:
        if connection is None:
            source, limit = _stored(store, config, set_, what, keys)
        else:
            source, limit = _of_cluster(connection, what, keys, exits=exits)
        stack.enter_context(closing(source))
        out = stack.enter_context(StdoutPieces())
        consume_all(source, Printer(out, piece, limit), count)


class _What(NamedTuple):
    """The messages that are asked for."""

    topics: list[str]
    queues: tuple[QueueNumber, ...]
    span: PositionSpan
    wanted: Filter
    group: str | None


def _piece(texts: tuple[str | None, str | None, str | None], body: BodyAs, *, json: bool) -> Piece:
    from gantrymq.cli.streams.formats import compile_format
    from gantrymq.cli.streams.printing import json_piece

    format_, delimit, key_delimiter = texts
    to_terminal = sys.stdout.isatty()
    if json:
        if any(text is not None for text in texts) or body is not BodyAs.RAW:
            raise typer.BadParameter("--json has its own shape: -f, -D, -K and --body are for text")
        return json_piece(to_terminal=to_terminal)
    if format_ is None:
        escaped = [text.replace("%", "%%") for text in (key_delimiter or "", r"\n" if delimit is None else delimit)]
        format_ = f"{'%k' if key_delimiter is not None else ''}{escaped[0]}%s{escaped[1]}"
    elif (delimit, key_delimiter) != (None, None):
        raise typer.BadParameter("-f says all: -D and -K are for the format without it")
    return compile_format(format_, body, to_terminal=to_terminal)


def _filter(tag: str | None, sql: str | None) -> Filter:
    from gantrymq.cli.streams.sources import Filter
    from gantrymq.client.requests.subscription import SQL92
    from gantrymq.errors import FilterSyntaxError, MQClientError

    if tag is not None and sql is not None:
        raise typer.BadParameter("--tag and --sql exclude each other")
    wanted = Filter(sql, SQL92) if sql is not None else Filter(tag or "*")
    try:
        wanted.evaluates()  # a broker says only that it could not parse the condition
    except (FilterSyntaxError, MQClientError) as error:
        raise typer.BadParameter(f"{'--tag' if sql is None else '--sql'} {wanted.expression!r}: {error}") from None
    return wanted


def _stored(
    store: Path | None, config: Path | None, assignments: list[str] | None, what: _What, keys: list[str] | None
) -> tuple[Source, int]:
    """The source over a store directory, and the most bytes of a body."""
    from gantrymq.cli.opened import open_reader, read_options
    from gantrymq.cli.streams.stored import StoredSource

    assert store is not None
    if what.group is not None or keys:
        raise typer.BadParameter("--group and -X are for a cluster, --store takes none")
    reading, topics = read_options(config, assignments), frozenset(what.topics)
    reader = open_reader(store, reading, trusts_writer=True, reads_queue=lambda queue: queue.topic in topics)
    try:
        source = StoredSource(reader, what.topics, what.queues, what.span, what.wanted)
    except BaseException:
        reader.close()
        raise
    return source, reader.config.max_decompressed_body_size_bytes


def _of_cluster(
    connection: ClusterConnection, what: _What, keys: list[str] | None, *, exits: bool
) -> tuple[Source, int]:
    """The source over a cluster, and the most bytes of a body."""
    from gantrymq.cli.streams.pulled import PulledSource
    from gantrymq.client.pull.pull_client import PullClient
    from gantrymq.client.settings import ClientConfig

    if what.group is not None:
        return _of_group(connection, what, what.group, keys, exits=exits)
    settings: dict[str, Any] = {**connection.settings, **read_client_keys(ClientConfig, keys)}
    config = ClientConfig(connection.name_servers, **settings)
    client = PullClient(config, attempts=_ATTEMPTS)
    source = PulledSource(client, what.topics, what.queues, what.span, what.wanted, exits=exits)
    return source, config.max_decompressed_body_size


def _of_group(
    connection: ClusterConnection, what: _What, group: str, keys: list[str] | None, *, exits: bool
) -> tuple[Source, int]:
    from gantrymq.cli.streams.grouped import GroupSource, where_settings
    from gantrymq.client.consumer.lite_pull import LitePullConsumer
    from gantrymq.client.consumer.settings import LitePullConsumerConfig
    from gantrymq.client.pull.pull_client import PullClient

    if what.queues:
        raise typer.BadParameter("--queue is for reading without --group, which divides the queues itself")
    settings: dict[str, Any] = {
        **connection.settings,
        **where_settings(what.span),
        **read_client_keys(LitePullConsumerConfig, keys),
        "consumer_group": group,
        "auto_commit": False,  # an offset is committed when its messages were printed
        "decode_decompress_body": False,  # the printer does it, so that what is stored can be shown
    }
    config = LitePullConsumerConfig(connection.name_servers, **settings)
    queries = PullClient(connection.name_servers, **connection.settings) if exits else None
    source = GroupSource(LitePullConsumer(config), what.topics, what.wanted, what.span, queries=queries)
    return source, config.max_decompressed_body_size
