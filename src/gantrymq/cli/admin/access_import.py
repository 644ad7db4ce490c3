"""``acl import``: users with their policies from plain_acl.yml, from a store of RocketMQ, or from a broker.

The target is a running broker, which stores each change before it answers, or a store on which none runs: its lock is
held while ``config/users.json`` and ``config/acls.json`` are replaced. Passwords travel and are never shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gantrymq.cli.admin.access import entry_text, one_broker
from gantrymq.cli.admin.session import Broker, Cluster, Session, Target, admin_command, require
from gantrymq.errors import AccessError, GantrymqError, MQClientError

if TYPE_CHECKING:
    from gantrymq.auth.directory import AccessDirectory
    from gantrymq.auth.imports import ImportPlan, ImportSource, PlannedItem, UserChange

_COLUMNS = {"brokerName": "broker", "username": "user", "item": "item", "status": "status"}
_STORE_COLUMNS = {name: heading for name, heading in _COLUMNS.items() if name != "brokerName"}
_DEFAULT_CLUSTER = "DefaultCluster"


@admin_command
def acl_import(
    session: Session,
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="A plain_acl.yml of RocketMQ 4.", show_default=False)
    ] = None,
    from_store: Annotated[
        Path | None,
        typer.Option("--from-store", metavar="STORE", help="A store of RocketMQ 5 whose broker has stopped."),
    ] = None,
    from_broker: Annotated[
        str | None, typer.Option("--from-broker", metavar="BROKER", help="A running broker of RocketMQ 5.")
    ] = None,
    to_store: Annotated[
        Path | None,
        typer.Option("--to-store", metavar="STORE", help="Write into this store, on which no broker runs."),
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Also change those that exist and differ.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Change nothing, show what would be.")] = False,
    broker: Broker = None,
    cluster: Cluster = None,
) -> None:
    """Create users with their policies from a file, a store or a broker of RocketMQ.

    They go to all brokers, or to those of --broker or --cluster; with --to-store
    to a store (--cluster then says which cluster it is of). What exists with
    other values stays, unless --replace is given. What cannot be taken is
    named, such as white addresses. In both cases the exit code is 1.

    Examples of use:

        gantrymq admin acl import plain_acl.yml --dry-run
        gantrymq admin acl import --from-broker 10.0.0.2:10911 --replace
        gantrymq admin acl import --from-store /old/store --to-store /data/store
    """
    given = (file, from_store, from_broker)
    require(sum(source is not None for source in given) == 1, "give one of FILE, --from-store and --from-broker")
    require(to_store is None or broker is None, "--broker and --to-store: give one of them")
    targets = session.brokers(broker, cluster) if to_store is None else []
    clusters = {target.cluster for target in targets} if targets else {cluster or _DEFAULT_CLUSTER}
    source = _source(session, file, from_store, from_broker, clusters)
    if to_store is not None:
        rows = _into_store(to_store, source, replace=replace, dry_run=dry_run)
    else:
        rows = [
            row for target in targets for row in _into_broker(session, target, source, replace=replace, dry_run=dry_run)
        ]
    _finish(session, source, rows, _COLUMNS if targets else _STORE_COLUMNS)


def _finish(session: Session, source: ImportSource, rows: list[dict[str, object]], columns: dict[str, str]) -> None:
    """Print the rows, and what was not taken."""
    session.rows(rows, columns, none="" if source.problems else "nothing to import")
    for problem in source.problems:
        session.finding(f"{problem.username}: {problem.text}" if problem.username else problem.text)
    differing = sum(row["status"] == "differs" for row in rows)
    if differing:
        session.finding(f"{differing} of {len(rows)} exist with other values; --replace changes them")


# Sources


def _source(
    session: Session, file: Path | None, store: Path | None, broker: str | None, clusters: Iterable[str]
) -> ImportSource:
    if file is not None:
        return _accounts(file, clusters)
    if store is not None:
        return _java_tables(store)
    return _of_broker(session, one_broker(session, broker or ""))


def _accounts(file: Path, clusters: Iterable[str]) -> ImportSource:
    """The accounts of plain_acl.yml. Raises ModuleNotFoundError without PyYAML."""
    import yaml  # noqa: F401  (msgspec needs it)

    from gantrymq.broker.acl.account_import import import_accounts, read_accounts

    try:
        return import_accounts(read_accounts(file, clusters))
    except OSError as error:
        raise typer.BadParameter(f"{file}: {error.strerror}") from None


def _java_tables(store: Path) -> ImportSource:
    from gantrymq.auth.java_tables import has_java_tables, read_java_tables
    from gantrymq.store.paths import StorePaths

    paths = StorePaths(store)
    if not has_java_tables(paths.config):
        raise MQClientError(f"{store} has no users of RocketMQ: there is neither config/users nor config/acls")
    _refuse_running(store, "--from-broker copies from a running one")
    return read_java_tables(paths.config)


def _refuse_running(store: Path, remedy: str) -> None:
    from gantrymq.errors import StoreLockedError
    from gantrymq.fs.lock_holder import lock_holder
    from gantrymq.store.paths import StorePaths

    holder = lock_holder(StorePaths(store).lock)
    if holder is not None:
        raise StoreLockedError(StorePaths(store).lock, f"is held by process {holder}: a broker runs on it; {remedy}")


def _of_broker(session: Session, origin: Target) -> ImportSource:
    from gantrymq.auth.bodies import policies_of, user_of_info
    from gantrymq.auth.directory import user_of
    from gantrymq.auth.imports import ImportSource

    source = ImportSource()
    for info in session.admin.users(origin.address):
        if info.password:
            source.add_user(user_of_info(info))
        else:
            source.problem(info.username or "", f"is not taken: {origin.name} returns no password")
    for acl in session.admin.acls(origin.address):
        source.add_policies(user_of(acl.subject) or acl.subject or "", lambda acl=acl: policies_of(acl))  # type: ignore[misc]
    return source


# Targets


def _into_broker(
    session: Session, target: Target, source: ImportSource, *, replace: bool, dry_run: bool
) -> list[dict[str, object]]:
    """Import into a running broker. Returns the rows. A user that is refused does not stop the others."""
    from gantrymq.auth.imports import plan_import

    plan = plan_import(source, _directory_of(session, target, source), replace=replace)
    failed = set() if dry_run else set(_applied(session, target, plan))
    rows = []
    for row in _rows(plan.items, dry_run=dry_run):
        has_failed = row["username"] in failed and row["status"] in ("created", "changed")
        rows.append({**target.fields(), **row} | ({"status": "failed"} if has_failed else {}))
    return rows


def _directory_of(session: Session, target: Target, source: ImportSource) -> AccessDirectory:
    """What a broker has: its users, and the policies of the users of the source."""
    from gantrymq.auth.bodies import policies_of, user_of_info
    from gantrymq.auth.directory import AccessDirectory, user_of
    from gantrymq.auth.policies import Acl

    users = {user.name: user for user in map(user_of_info, session.admin.users(target.address))}
    acls = {}
    for info in session.admin.acls(target.address):
        name = user_of(info.subject)
        if name in source.acls:
            try:
                acls[name] = Acl(tuple(policies_of(info)))
            except AccessError as error:
                raise MQClientError(f"{target.name}: {info.subject} has a policy that is not read: {error}") from None
    return AccessDirectory(users, acls)


def _applied(session: Session, target: Target, plan: ImportPlan) -> Iterator[str]:
    """Send the changes. Yields the users whose changes were refused."""
    for change in plan.changes:
        try:
            _send(session, target, change)
        except GantrymqError as error:
            session.missing(f"{target.name}: {change.name}", error)
            yield change.name


def _send(session: Session, target: Target, change: UserChange) -> None:
    """Send a user first: without its policies it may do nothing."""
    from gantrymq.auth.bodies import acl_info

    user, admin = change.user, session.admin
    if user is not None and change.is_new:
        admin.create_user(target.address, user.name, user.password, user.type.value, user.status.value)
    elif user is not None:
        admin.update_user(
            target.address,
            user.name,
            password=user.password,
            user_type=user.type.value,
            user_status=user.status.value,
        )
    if change.policies:
        admin.update_acl(target.address, acl_info(change.name, change.policies))


def _into_store(store: Path, source: ImportSource, *, replace: bool, dry_run: bool) -> list[dict[str, object]]:
    """Import into the files of a store, under its lock. Returns the rows.

    Raises StoreLockedError, NotAStoreError, StoreError for a damaged file, DiskFullError.
    """
    from gantrymq.auth.files import AccessFiles
    from gantrymq.auth.imports import plan_import, with_import
    from gantrymq.format.names import LOCK_TEXT
    from gantrymq.fs.real import RealFileSystem
    from gantrymq.store.geometry import require_store
    from gantrymq.store.paths import StorePaths

    fs, paths = RealFileSystem(), StorePaths(store)
    require_store(fs, paths)
    with ExitStack() as stack:
        if not dry_run:
            stack.callback(fs.lock(paths.lock, LOCK_TEXT).release)
        files = AccessFiles(fs, paths.config)
        before = files.load()
        plan = plan_import(source, before, replace=replace)
        after = with_import(before, plan.changes)
        if not dry_run and plan.changes:
            files.save(after)
    return list(_rows(plan.items, dry_run=dry_run))


def _rows(items: Iterable[PlannedItem], *, dry_run: bool) -> Iterator[dict[str, object]]:
    from gantrymq.auth.files import entry_value

    for item in items:
        entry = item.entry
        kind = item.policy_type.value if item.policy_type is not None else None
        yield {
            "username": item.username,
            "item": "user" if entry is None else f"{kind}: {entry_text(entry_value(entry))}",
            "policyType": kind,
            "entry": None if entry is None else entry_value(entry),
            "status": item.status.value,
            "dryRun": dry_run,
        }
