"""``gantrymq store preflight``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gantrymq.cli.options import AsJson, ConfigFile, Settings, Store
from gantrymq.cli.terminal import FINDINGS

if TYPE_CHECKING:
    from gantrymq.auth.imports import ImportSource
    from gantrymq.config.broker_settings import BrokerConfig, LiveConfig
    from gantrymq.config.guards import Reason
    from gantrymq.errors import ConfigError
    from gantrymq.tools.preflight import Preflight


def preflight(
    store: Store,
    back: Annotated[bool, typer.Option("--back", help="Ask whether it can move back to RocketMQ.")] = False,
    config: ConfigFile = None,
    set_: Settings = None,
    json: AsJson = False,
) -> None:
    """Examine whether a store and a configuration can move from RocketMQ to gantrymq, or back.

    Every reason is one line with its remedy: keys and contents that cannot be
    honoured, settings, tables and a log with which no broker starts, a full
    disk, and missing permissions. The settings are those of a start: of -c,
    of the environment, and those that tools changed while a broker ran.
    A refused reason keeps the store from moving (exit code 1) unless
    acceptWithoutEffect names it; a warning does not. Pending messages, disk
    use, versions and addresses follow.

    Nothing is written. A broker may run on the store.

    Examples of use:

        gantrymq store preflight -c broker.conf /data/store
        gantrymq store preflight -c broker.conf --set acceptWithoutEffect=enableLmq /data/store --json
        gantrymq store preflight --back -c broker.conf /data/store
    """
    from gantrymq.broker.tables.persistence import table_decoders
    from gantrymq.cli.terminal import progress
    from gantrymq.config.properties import read_settings
    from gantrymq.tools.preflight import Direction
    from gantrymq.tools.preflight import preflight as examine

    direction = Direction.BACK if back else Direction.HERE
    entries, reasons = _settings_there(config, set_) if back else _settings_here(config, set_, store)
    with progress("files and messages") as report:
        result = examine(
            store, read_settings(entries), direction, of_settings=reasons, decoders=table_decoders(), report=report
        )
    (_print_json if json else _print)(result)
    if not result.moves:
        raise typer.Exit(FINDINGS)


def _settings_here(
    config: Path | None, assignments: list[str] | None, store: Path
) -> tuple[Mapping[str, str], list[Reason]]:
    """Return the entries with which a start with the same arguments would run, and the reasons why it would not.

    An entry with which no broker starts has a reason, and is left out.
    """
    from gantrymq.cli.server_options import ServerSettings, read_server_options
    from gantrymq.store.opening import store_host_of
    from gantrymq.store.paths import StorePaths

    unknown: list[str] = []
    settings = read_server_options(config, assignments, on_unknown=unknown.append)
    try:
        changed = settings.of_broker(store)
    except PermissionError:  # the file has its reason
        changed = dict(settings.entries)
    entries, errors = _usable(
        changed,
        lambda entries: StorePaths.of(store, _live(entries).store),
        lambda entries: store_host_of(_live(entries).store),
        lambda entries: ServerSettings(entries, config).tls(),
        lambda entries: ServerSettings(entries, config).client_tls(),
    )
    return entries, [
        *map(_error_reason, errors),
        *_account_reasons(_live(entries).broker, store),
        *_user_reasons(_live(entries).broker, StorePaths(store).config),
        *_readable(_import_reasons(_live(entries).broker, store)),
        *map(_unknown_reason, unknown),
    ]


def _account_reasons(broker: BrokerConfig, store: Path) -> Iterator[Reason]:
    """A reason for a file of accounts with which access control does not start."""
    from gantrymq.broker.acl.access_control import AccessControl
    from gantrymq.config.guards import Level, Reason, Subject
    from gantrymq.errors import ConfigError

    try:
        AccessControl.of_broker(broker, store)
    except ConfigError as error:
        is_missing = error.key == "aclPlainFile"
        subject = Subject.KEY if is_missing else Subject.PATH
        name = error.key if is_missing else broker.acl_plain_file or "config/plain_acl.yml"
        text = str(error) if is_missing else f"{name} has no usable accounts: {error}"
        remedy = f"{'write' if is_missing else 'correct'} the accounts, or set aclEnable=false to take every client"
        yield Reason(Level.REFUSED, subject, name, text, remedy, acceptable=False)


def _user_reasons(broker: BrokerConfig, directory: Path) -> Iterator[Reason]:
    """A reason for a file of users or policies with which a broker with users does not start."""
    from gantrymq.auth.files import AccessFiles
    from gantrymq.config.guards import Level, Reason, Subject
    from gantrymq.errors import StoreError
    from gantrymq.fs.real import RealFileSystem

    if not broker.authentication_enabled:
        return
    try:
        AccessFiles(RealFileSystem(), directory).load()
    except StoreError as error:
        text, _, remedy = error.reason.partition("; ")
        name = f"config/{error.path.name}"
        yield Reason(Level.REFUSED, Subject.PATH, name, f"{name} {text}", remedy, acceptable=False)


def _import_reasons(broker: BrokerConfig, store: Path) -> Iterator[Reason]:
    """What `admin acl import` takes of the users or accounts of RocketMQ in the store, and what not."""
    from gantrymq.auth.java_tables import JAVA_USERS, has_java_tables, read_java_tables
    from gantrymq.config.guards import Level, Reason, Subject
    from gantrymq.errors import StoreError
    from gantrymq.format.names import USERS
    from gantrymq.store.paths import StorePaths

    config, name = StorePaths(store).config, f"config/{JAVA_USERS}"
    if has_java_tables(config):
        try:
            yield from _taken_reasons(name, read_java_tables(config), f"--from-store {store}", store)
        except ModuleNotFoundError:
            text, remedy = f"what can be taken of {name} is not known", "pip install 'gantrymq[rocksdb]'"
            yield Reason(Level.WARNING, Subject.PATH, name, text, remedy)
        except StoreError as error:
            remedy = "start RocketMQ's broker on the store and stop it again"
            yield Reason(Level.WARNING, Subject.PATH, f"config/{error.path.name}", str(error), remedy)
    elif broker.authentication_enabled and not (config / USERS).exists():
        yield from _account_import_reasons(config / "plain_acl.yml", broker.broker_cluster_name, store)


def _readable(reasons: Iterator[Reason]) -> Iterator[Reason]:
    """The reasons up to a file that this user cannot read, which has its own reason."""
    try:
        yield from reasons
    except PermissionError:
        return


def _account_import_reasons(file: Path, cluster: str, store: Path) -> Iterator[Reason]:
    from gantrymq.broker.acl.account_import import import_accounts, read_accounts
    from gantrymq.config.guards import Level, Reason, Subject
    from gantrymq.errors import ConfigError

    name = f"config/{file.name}"
    try:
        source = import_accounts(read_accounts(file, [cluster]))
    except FileNotFoundError:
        return
    except ConfigError as error:
        yield Reason(Level.WARNING, Subject.PATH, name, f"{name} cannot be imported: {error}", "correct the file")
        return
    yield from _taken_reasons(name, source, str(file), store)


def _taken_reasons(name: str, source: ImportSource, words: str, store: Path) -> Iterator[Reason]:
    from gantrymq.config.guards import Level, Reason, Subject
    from gantrymq.model.texts import count_text

    entries = sum(len(policy.entries) for acl in source.acls.values() for policy in acl.policies)
    text = f"{count_text(len(source.users), 'user')} and {count_text(entries, 'policy entry')} of {name} can be taken"
    remedy = f"`gantrymq admin acl import {words} --to-store {store}` takes them"
    yield Reason(Level.WARNING, Subject.PATH, name, text, remedy)
    for problem in source.problems:
        what = f"{name}, {problem.username}: " if problem.username else f"{name}: "
        yield Reason(Level.WARNING, Subject.PATH, name, f"{what}{problem.text}", "make up for it here")


def _settings_there(config: Path | None, assignments: list[str] | None) -> tuple[Mapping[str, str], list[Reason]]:
    """Return the entries of RocketMQ's broker.conf. RocketMQ ignores a value that it cannot read."""
    from gantrymq.cli.opened import read_entries

    return _usable(read_entries(config, assignments))[0], []


def _live(entries: Mapping[str, str]) -> LiveConfig:
    from gantrymq.config.broker_settings import LiveConfig

    live = LiveConfig()
    live.update(entries)
    return live


def _usable(
    entries: Mapping[str, str], *checks: Callable[[Mapping[str, str]], object]
) -> tuple[dict[str, str], list[ConfigError]]:
    """Return the entries without those that are not allowed, and the first error about each key.

    ``checks`` raise ConfigError like the parts of a start that use the entries.
    """
    from gantrymq.errors import ConfigError

    usable, errors = dict(entries), dict[str, ConfigError]()
    for check in (_live, *checks):
        while True:
            try:
                check(usable)
            except ConfigError as error:
                errors.setdefault(error.key, error)
                if usable.pop(error.key, None) is not None:
                    continue
            break
    return usable, list(errors.values())


def _error_reason(error: ConfigError) -> Reason:
    from gantrymq.config.guards import Level, Reason, Subject

    remedy = f"give {error.key} such a value, or remove it"
    return Reason(Level.REFUSED, Subject.KEY, error.key, str(error), remedy, acceptable=False)


def _unknown_reason(text: str) -> Reason:
    from gantrymq.config.guards import Level, Reason, Subject

    key = text.partition(" ")[0]
    return Reason(Level.WARNING, Subject.KEY, key, text, f"correct the name, or remove {key}")


def _print_json(result: Preflight) -> None:
    from gantrymq.cli.json_lines import JsonLines
    from gantrymq.config.guards import Level

    with JsonLines() as out:
        for reason in result.reasons:
            out.write(
                {
                    "kind": "reason",
                    "direction": result.direction,
                    "level": reason.level.value,
                    reason.subject.value: reason.name,
                    "group": reason.group or None,
                    "accepted": result.is_accepted(reason),
                    "text": reason.text,
                    "remedy": reason.remedy,
                }
            )
        out.write(
            {
                "kind": "summary",
                "store": str(result.path),
                "direction": result.direction,
                "moves": result.moves,
                "refused": result.count(Level.REFUSED),
                "accepted": sum(map(result.is_accepted, result.reasons)),
                "warnings": result.count(Level.WARNING),
                "pending": result.pending,
                "disk": {
                    "usedRatio": round(result.disk_used_ratio, 4),
                    "freeBytes": result.free_bytes,
                    "logFiles": result.log_files,
                    "expiredFiles": result.expired_files,
                },
                "writtenBy": result.written_by,
                "lockedBy": result.lock_holder,
                "abort": not result.last_exit_ok,
                "broker": {
                    "brokerName": result.broker.broker_name,
                    "brokerClusterName": result.broker.broker_cluster_name,
                    "address": f"{result.broker.broker_ip1}:{result.broker.listen_port}",
                    "namesrvAddr": result.broker.namesrv_addr or None,
                },
            }
        )


def _print(result: Preflight) -> None:
    from gantrymq.cli.terminal import print_line, print_pairs
    from gantrymq.config.guards import Level
    from gantrymq.model.size import size_text
    from gantrymq.model.texts import count_text

    for reason in result.reasons:
        print_line(f"{_level(result, reason):9}{reason.line}")
    where = "back to RocketMQ" if result.direction == "back" else "to gantrymq"
    verdict = f"can move {where}" if result.moves else f"cannot move {where}"
    counts = f"{result.count(Level.REFUSED)} refused, {count_text(result.count(Level.WARNING), 'warning')}"
    pending = (
        "unknown" if result.pending is None else ", ".join(f"{n:,} {kind}" for kind, n in result.pending.items() if n)
    )
    free = "" if result.free_bytes is None else f", {size_text(result.free_bytes)} free"
    state = "closed" if result.last_exit_ok else "not closed"
    broker = result.broker
    pairs = [
        ("pending", pending or "nothing"),
        ("disk", f"{result.disk_used_ratio:.0%} used{free}"),
        ("log", f"{count_text(result.log_files, 'file')}, {result.expired_files} older than fileReservedTime"),
        ("written by", result.written_by),
        ("state", state if result.lock_holder is None else f"open: process {result.lock_holder} writes to it"),
        ("broker", f"{broker.broker_name} of {broker.broker_cluster_name}"),
        ("address", f"{broker.broker_ip1}:{broker.listen_port}, name servers {broker.namesrv_addr or 'not given'}"),
    ]
    print_pairs(f"{result.path}: {verdict} ({counts})", pairs)


def _level(result: Preflight, reason: Reason) -> str:
    return "accepted" if result.is_accepted(reason) else reason.level.value
