"""``export`` and ``import`` of topics and groups: the settings of a cluster as a file of JSON lines.

A line is ``{"kind":"topic"|"group","cluster","brokerName", …}`` with RocketMQ's fields. ``import`` also reads what
mqadmin writes and takes: the object of exportMetadata, and the lists of updateTopicList and updateSubGroupList.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from gantrymq.cli.admin.session import Broker, Cluster, Session, Target, admin_command, new_file
from gantrymq.cli.admin.topics import kind_of
from gantrymq.model.system_names import SYSTEM_GROUP_PREFIX

if TYPE_CHECKING:
    from gantrymq.remoting.bodies.group import SubscriptionGroupConfig
    from gantrymq.remoting.bodies.topic import TopicConfig

    Config = TopicConfig | SubscriptionGroupConfig

_STDIO = Path("-")
# Groups that every broker creates itself.
_OWN_GROUP_PREFIXES = (SYSTEM_GROUP_PREFIX, "CID_ONS", "SELF_TEST_", "TOOLS_CONSUMER", "FILTERSRV_CONSUMER")


@admin_command
def export(
    session: Session,
    out: Annotated[Path, typer.Argument(metavar="FILE", help="A new file, or - for stdout.", show_default=False)],
    topics: Annotated[bool, typer.Option("--topics", help="Only topics.")] = False,
    groups: Annotated[bool, typer.Option("--groups", help="Only groups.")] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Also those of the system, of retries, of the DLQ.")
    ] = False,
    broker: Broker = None,
    cluster: Cluster = None,
) -> None:
    """Write the settings of all topics and groups as JSON lines, which import reads.

    Examples of use:

        gantrymq admin export cluster.jsonl
        gantrymq admin export - --topics -c DefaultCluster
    """
    from gantrymq.cli.json_lines import json_line

    kinds = [kind for kind, wanted in (("topic", topics), ("group", groups)) if wanted] or ["topic", "group"]
    lines = list(_exported(session, session.masters(broker, cluster), kinds, everything=everything))
    data = b"".join(map(json_line, lines))
    if out == _STDIO:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return
    with new_file(out) as file:
        file.write(data)
    counts = {kind: sum(line["kind"] == kind for line in lines) for kind in kinds}
    row = {"out": str(out), **{f"{kind}s": count for kind, count in counts.items()}}
    session.rows([row], {"out": "file", **{f"{kind}s": f">{kind}s" for kind in kinds}})


def _exported(
    session: Session, targets: list[Target], kinds: list[str], *, everything: bool
) -> Iterator[dict[str, object]]:
    from msgspec import to_builtins

    def ask(target: Target) -> list[tuple[str, str, Config]]:
        configs: list[tuple[str, str, Config]] = []
        if "topic" in kinds:
            configs += [("topic", name, config) for name, config in session.admin.topic_configs(target.address).items()]
        if "group" in kinds:
            configs += [
                ("group", name, config) for name, config in session.admin.subscription_groups(target.address).items()
            ]
        return configs

    for target, configs in session.each(targets, ask):
        for kind, name, config in configs:
            if everything or not is_own(kind, name, target):
                yield {"kind": kind, "cluster": target.cluster, "brokerName": target.name, **to_builtins(config)}


def is_own(kind: str, name: str, target: Target) -> bool:
    """Whether every broker makes a topic or group of this name itself."""
    if kind == "group":
        return name.startswith(_OWN_GROUP_PREFIXES)
    own = (target.name, target.cluster, f"{target.cluster}_REPLY_TOPIC", f"{target.cluster}_{target.name}")
    return kind_of(name) != "normal" or name in own


class Item(NamedTuple):
    """One topic or group of a file. ``source`` is its place in the file. ``broker`` is None if the file names no
    broker.
    """

    source: str
    broker: str | None
    config: Config


@admin_command
def import_(
    session: Session,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="From export; - is stdin.", show_default=False)],
    replace: Annotated[bool, typer.Option("--replace", help="Also change those that exist and differ.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Change nothing, show what would be.")] = False,
    broker: Broker = None,
    cluster: Cluster = None,
) -> None:
    """Create the topics and groups of a file.

    Each goes to the broker that its line names, or to all masters of --cluster
    or --broker. One that exists with other settings stays, unless --replace is
    given, and the exit code is 1. An invalid line does not stop the others.

    Examples of use:

        gantrymq admin import cluster.jsonl --dry-run
        gantrymq admin import cluster.jsonl -c DefaultCluster --replace
    """
    targets = session.masters(broker, cluster)
    is_given = broker is not None or cluster is not None
    rows = []
    items = list(_items(session, _read(file)))
    known = dict(session.each(targets, lambda target: _tables(session, target)))
    for item in items:
        chosen = [target for target in known if is_given or target.name == item.broker]
        if not chosen:
            session.finding(f"{item.source}: no broker {item.broker or 'is named'}; give --broker or --cluster")
        for target in chosen:
            rows.append(_applied(session, item, target, known[target], replace=replace, dry_run=dry_run))
    columns = {"kind": "kind", "name": "name", "brokerName": "broker", "status": "status"}
    session.rows(rows, columns, none="nothing to import")


def _read(file: Path) -> bytes:
    if file == _STDIO:
        return sys.stdin.buffer.read()
    try:
        return file.read_bytes()
    except OSError as error:
        raise typer.BadParameter(f"{file}: {error.strerror}") from None


def _items(session: Session, raw: bytes) -> Iterator[Item]:
    """The topics and groups of a file. What cannot be read is reported."""
    import msgspec

    try:
        whole = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        whole = None
    if isinstance(whole, list) or (isinstance(whole, dict) and "kind" not in whole):
        values = whole if isinstance(whole, list) else _of_metadata(whole)
        values_by_source = [(f"entry {number}", value) for number, value in enumerate(values, 1)]
    else:
        lines = [(number, line) for number, line in enumerate(raw.splitlines(), 1) if line.strip()]
        values_by_source = [(f"line {number}", _decoded(line)) for number, line in lines]
    for source, value in values_by_source:
        item = _item(source, value)
        if isinstance(item, str):
            session.finding(f"{source}: {item}")
        else:
            yield item


def _of_metadata(value: Mapping[str, Any]) -> list[object]:
    tables = [value.get(name) for name in ("topicConfigTable", "subscriptionGroupTable")]
    return [item for table in tables if isinstance(table, dict) for item in table.values()]


def _decoded(line: bytes) -> object:
    import msgspec

    try:
        return msgspec.json.decode(line)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def _item(source: str, value: object) -> Item | str:
    """An item, or the reason why the value is not an item."""
    import msgspec

    from gantrymq.broker.names import wrong_group, wrong_topic
    from gantrymq.remoting.bodies.group import SubscriptionGroupConfig
    from gantrymq.remoting.bodies.topic import TopicConfig

    if not isinstance(value, dict) or not ("topicName" in value or "groupName" in value):
        return "this is no object with a topicName or a groupName"
    is_topic = "topicName" in value
    try:
        kind = TopicConfig if is_topic else SubscriptionGroupConfig
        config: Config = msgspec.convert(value, kind, strict=False)  # type: ignore[assignment]
    except msgspec.ValidationError as error:
        return str(error)
    name = config.topic_name if isinstance(config, TopicConfig) else config.group_name
    reason = (wrong_topic if is_topic else wrong_group)(name or "")
    if reason is not None:
        return reason
    broker = value.get("brokerName")
    return Item(source, broker if isinstance(broker, str) else None, config)


class _Tables(NamedTuple):
    topics: dict[str, TopicConfig]
    groups: dict[str, SubscriptionGroupConfig]


def _tables(session: Session, target: Target) -> _Tables:
    return _Tables(session.admin.topic_configs(target.address), session.admin.subscription_groups(target.address))


def _applied(
    session: Session, item: Item, target: Target, known: _Tables, *, replace: bool, dry_run: bool
) -> dict[str, object]:
    """Create or change one topic or group at one broker. Returns its row."""
    from gantrymq.errors import GantrymqError
    from gantrymq.remoting.bodies.topic import TopicConfig

    config = item.config
    is_topic = isinstance(config, TopicConfig)
    name = str(config.topic_name if isinstance(config, TopicConfig) else config.group_name)
    before: Config | None = (known.topics if is_topic else known.groups).get(name)
    status = "created" if before is None else "same" if _same(before, config) else "changed" if replace else "differs"
    if status == "differs":
        session.finding(f"{item.source}: {name} has other settings at {target.name}; --replace changes them")
    if status in ("created", "changed") and not dry_run:
        try:
            _put(session, config, before, target)
        except GantrymqError as error:
            session.missing(target.name, error)
            status = "failed"
    row = {**target.fields(), "kind": "topic" if is_topic else "group", "name": name, "status": status}
    return {**row, "dryRun": dry_run}


def _same(first: Config, other: Config) -> bool:
    """Whether the settings are the same; a broker adds defaults to those of a group."""
    from gantrymq.remoting.bodies.topic import TopicConfig

    if isinstance(first, TopicConfig):
        return first == other
    return all(getattr(first, name) == getattr(other, name) for name in first.__struct_fields__ if name != "group_name")


def _put(session: Session, config: Config, before: Config | None, target: Target) -> None:
    from msgspec.structs import replace

    from gantrymq.remoting.bodies.topic import TopicConfig

    if not isinstance(config, TopicConfig):
        session.admin.create_subscription_group(str(config.group_name), config, broker=target.address)
        return
    had = before.attributes if before is not None else {}
    changes = {f"+{key}": value for key, value in config.attributes.items() if had.get(key) != value}
    changes |= {f"-{key}": "" for key in had if key not in config.attributes}
    session.admin.put_topic_config(replace(config, attributes=changes), broker=target.address)
