"""The parts that all commands of ``gantrymq admin`` share: the client, output, choice of brokers, and exit code.

A command is a function ``command(session, …)`` with typer's parameters. :func:`admin_command` adds the options of the
connection and ``--json``; :func:`watched` adds ``--watch`` too.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, NamedTuple, TypeVar

import typer

from gantrymq.cli.advice import advice, advised
from gantrymq.cli.client_keys import ClientKeys, read_client_keys
from gantrymq.cli.connection import ClusterConnection, client_warnings, connection_parameters
from gantrymq.cli.options import AsJson, require_range
from gantrymq.cli.terminal import DONE, FINDINGS, print_error, print_pairs, print_table, warn
from gantrymq.errors import GantrymqError, MQClientError
from gantrymq.model.texts import time_text

if TYPE_CHECKING:
    from gantrymq.client.admin.admin_client import AdminClient
    from gantrymq.client.producer.settings import ProducerConfig
    from gantrymq.client.settings import ClientConfig

T = TypeVar("T")

Broker = Annotated[
    str | None, typer.Option("-b", "--broker", metavar="BROKER", help="One broker: its name, or host:port.")
]
Cluster = Annotated[str | None, typer.Option("-c", "--cluster", metavar="NAME", help="The brokers of one cluster.")]
Watch = Annotated[
    float | None,
    typer.Option("--watch", metavar="SECONDS", min=0.1, help="Repeat until Ctrl-C.", show_default=False),
]
_CLEAR = "\x1b[H\x1b[2J\x1b[3J"


class Target(NamedTuple):
    """A broker of the cluster. ``broker_id`` 0 is a master."""

    cluster: str
    name: str
    broker_id: int
    address: str

    def fields(self) -> dict[str, object]:
        """Its fields in JSON."""
        return {"cluster": self.cluster, "brokerName": self.name, "brokerId": self.broker_id, "address": self.address}


class Session:
    """One run of a command. ``connect`` returns the client's settings; a command without a cluster calls it never.

    Rows are printed as a table, or as JSON with ``is_json``. A server that does not answer is named on stderr, and the
    exit code is then 1.
    """

    def __init__(self, connect: Callable[[], ClientConfig], *, is_json: bool) -> None:
        self._connect, self.is_json = connect, is_json
        self.code = DONE
        self._named = set[str]()

    @cached_property
    def config(self) -> ClientConfig:
        """The settings of a client. Raises BadParameter without a name server, ConfigError for a wrong value."""
        return self._connect()

    @cached_property
    def admin(self) -> AdminClient:
        """The client. It ignores servers that do not answer, if others do."""
        from gantrymq.client.admin.admin_client import AdminClient

        client = AdminClient(self.config)
        client.when_missing = self.missing
        return client

    def producer_config(self) -> ProducerConfig:
        """The settings of a producer at the same cluster."""
        from dataclasses import fields

        from gantrymq.client.producer.settings import ProducerConfig
        from gantrymq.client.settings import ClientConfig

        values: dict[str, Any] = {field.name: getattr(self.config, field.name) for field in fields(ClientConfig)}
        return ProducerConfig(**values)

    def close(self) -> None:
        """Close the client, if it was used."""
        if "admin" in self.__dict__:
            self.admin.close()

    # What went wrong

    def missing(self, name: str, error: GantrymqError) -> None:
        """Name a server without an answer, once for each reason. The exit code becomes 1."""
        text = advised(error)
        text = text if text.startswith(name) else f"{name}: {text}"
        if text not in self._named:
            self._named.add(text)
            self.finding(text)

    def begin_round(self) -> None:
        """Begin one more run of a watch: servers without an answer are named again."""
        self._named.clear()

    def finding(self, text: str) -> None:
        """Print one line on stderr. The exit code becomes 1."""
        print_error(text)
        self.code = max(self.code, FINDINGS)

    def each(self, targets: Iterable[Target], call: Callable[[Target], T]) -> Iterator[tuple[Target, T]]:
        """The result of ``call`` for each broker. A broker that fails is named; if all fail, the first error raises."""
        failed, answered = list[tuple[Target, GantrymqError]](), 0
        for target in targets:
            try:
                result = call(target)
            except GantrymqError as error:
                failed.append((target, error))
            else:
                answered += 1
                yield target, result
        if failed and not answered:
            raise failed[0][1]
        for target, failure in failed:
            self.missing(target.name, failure)

    # Which brokers

    def brokers(self, broker: str | None = None, cluster: str | None = None) -> list[Target]:
        """All brokers, those of a cluster, or one by name (its master and slaves) or address."""
        if broker is not None and cluster is not None:
            raise typer.BadParameter("--broker and --cluster: give one of them")
        try:
            info = self.admin.cluster_info()
        except GantrymqError:
            if broker is None or ":" not in broker:
                raise
            return [Target("", broker, 0, broker)]  # it may still be reachable
        targets = [
            Target(data.cluster or cluster_name, data.broker_name, broker_id, address)
            for cluster_name, names in sorted(info.cluster_addr_table.items())
            for name in sorted(names)
            for data in [info.broker_addr_table.get(name)]
            if data is not None
            for broker_id, address in sorted(data.broker_addrs.items())
        ]
        if cluster is not None:
            if cluster not in info.cluster_addr_table:
                known = ", ".join(sorted(info.cluster_addr_table)) or "none"
                raise MQClientError(f"there is no cluster {cluster}; known: {known}")
            return [target for target in targets if target.cluster == cluster]
        if broker is None:
            return targets
        matching = [target for target in targets if broker in (target.name, target.address)] or _at(targets, broker)
        if matching or ":" in broker:
            return matching or [Target("", broker, 0, broker)]
        known = ", ".join(sorted({target.name for target in targets})) or "none"
        raise MQClientError(f"there is no broker {broker}; known: {known}")

    def masters(self, broker: str | None = None, cluster: str | None = None) -> list[Target]:
        """The brokers of :meth:`brokers` that accept changes. Raises MQClientError if there is none."""
        chosen = self.brokers(broker, cluster)
        masters = [target for target in chosen if target.broker_id == 0 or target.address == broker]
        if not masters:
            raise MQClientError("no broker is registered that is a master; `gantrymq admin cluster` shows the brokers")
        return masters

    # Output

    def rows(self, rows: Iterable[Mapping[str, object]], columns: Mapping[str, str], *, none: str = "") -> None:
        """Print rows: as JSON lines with all fields, or as a table with the fields of ``columns`` (heading by field).

        A heading that begins with ``>`` is that of numbers. ``none`` is a line on stderr if there are no rows.
        """
        if self.is_json:
            from gantrymq.cli.json_lines import JsonLines

            empty = True
            with JsonLines() as out:
                for row in rows:
                    empty = False
                    out.write(row)
        else:
            table = [[cell(field, row.get(field)) for field in columns] for row in rows]
            empty = not table
            if table:
                print_table(list(columns.values()), table)
        if empty and none:
            warn(none)

    def pairs(self, title: str, fields: Mapping[str, object], shown: Mapping[str, object] | None = None) -> None:
        """Print one object: as a JSON line with ``fields``, or as a title and a line for each of ``shown``."""
        if self.is_json:
            self.rows([fields], {})
        else:
            chosen = fields if shown is None else shown
            print_pairs(title, [(name, cell(name, value)) for name, value in chosen.items()])


def _at(targets: Iterable[Target], address: str) -> list[Target]:
    """The brokers that are registered under another text of ``host:port``, such as a host name."""
    from gantrymq.client.connection.resolving import hosts_of

    wanted = hosts_of(address) if ":" in address else frozenset()
    return [target for target in targets if wanted & hosts_of(target.address)]


def cell(field: str, value: object) -> str:
    """A value as people read it: times as local time, a missing value as ``-``."""
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case int() if field.endswith("Timestamp"):
            return time_text(value)
        case float():
            return f"{value:,.2f}"
        case Mapping():
            return ", ".join(f"{name}={cell('', item)}" for name, item in value.items())
        case list() | tuple() | set():
            return ", ".join(cell("", item) for item in value)
    return str(value)


def admin_command(command: Callable[..., None]) -> Callable[..., None]:
    """Make typer's function of ``command(session, …)``."""
    return _with_options(command, {})


def watched(command: Callable[..., None]) -> Callable[..., None]:
    """Make typer's function of ``command(session, …)``, with ``--watch``. The command must change nothing."""
    return _with_options(command, {"watch": Watch})


def _with_options(command: Callable[..., None], added: Mapping[str, Any]) -> Callable[..., None]:
    shared = connection_parameters()
    own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]
    keyword = inspect.Parameter.KEYWORD_ONLY
    extra = {name: inspect.Parameter(name, keyword, default=None, annotation=kind) for name, kind in added.items()}
    extra["client_keys"] = inspect.Parameter("client_keys", keyword, default=None, annotation=ClientKeys)
    extra["json"] = inspect.Parameter("json", keyword, default=False, annotation=AsJson)
    parameters = [parameter.replace(kind=keyword) for parameter in (*own, *extra.values(), *shared.values())]

    @wraps(command)
    def run(**given: Any) -> None:
        options = {name: given.pop(name) for name in shared}
        profile = options.pop("profile")
        client_keys: list[str] | None = given.pop("client_keys")
        interval_s: float | None = given.pop("watch", None)
        session = Session(
            lambda: _client_config(ClusterConnection.read(options, profile), client_keys), is_json=given.pop("json")
        )
        require_range(given.get("begin"), given.get("end"))
        try:
            with client_warnings():
                if interval_s is None:
                    with advice():
                        command(session, **given)
                else:
                    _repeat(session, interval_s, lambda: command(session, **given))
        finally:
            session.close()
        if session.code:
            raise typer.Exit(session.code)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def _client_config(connection: ClusterConnection, client_keys: list[str] | None) -> ClientConfig:
    from gantrymq.client.settings import ClientConfig

    settings: dict[str, Any] = {**connection.settings, **read_client_keys(ClientConfig, client_keys)}
    return ClientConfig(connection.name_servers, **settings)


def _repeat(session: Session, interval_s: float, once: Callable[[], None]) -> None:
    """Print again and again until Ctrl-C, which ends the command with the exit code 0.

    A cluster that cannot answer is reported, and asked again the next time.
    """
    import sys

    try:
        while True:
            if sys.stdout.isatty() and not session.is_json:
                print(_CLEAR, end="")
            session.begin_round()
            try:
                once()
            except GantrymqError as error:
                print_error(advised(error))
            sys.stdout.flush()
            time.sleep(interval_s)
            if _reader_is_gone():  # while the cluster does not answer, nothing is printed that would raise
                raise BrokenPipeError
    except KeyboardInterrupt:
        session.code = DONE


def _reader_is_gone() -> bool:
    """Whether stdout is a pipe that has no reader any more."""
    import select
    import sys

    poll = select.poll()
    try:
        poll.register(sys.stdout.fileno(), 0)
    except (OSError, ValueError):  # it is no file
        return False
    return any(event & select.POLLERR for _, event in poll.poll(0))


def require(condition: object, text: str) -> None:
    """Raise a usage error unless the condition holds."""
    if not condition:
        raise typer.BadParameter(text)


@contextmanager
def new_file(path: Path) -> Iterator[BinaryIO]:
    """A file to write, which must not exist yet. It is removed again if its writer fails or is interrupted."""
    try:
        file = path.open("xb")
    except FileExistsError:
        raise typer.BadParameter(f"{path} exists already; choose another file, or remove it") from None
    try:
        with file:
            yield file
    except BaseException:
        path.unlink(missing_ok=True)
        raise
