"""The whole command line for typer."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Any

import typer

from gantrymq.cli.help_texts import help_text

# Each is a function in the module of the same name.
_IN_STORE: tuple[str, ...] = (
    *("info", "usage", "dump", "show", "log", "query", "at", "pending", "verify", "export"),
    *("recover", "rebuild", "salvage", "ingest", "preflight", "diverged"),
)
_IN_TABLE: tuple[str, ...] = ("land", "retry", "status")
_OF_ARCHIVE: tuple[str, ...] = ("check", "restore")  # words in place of the STORE of `archive`
_OTHERS: tuple[str, ...] = (
    *("produce", "consume", "serve", "namesrv", "broker", "proxy", "console", "mirror", "archive"),
    *("sql", "completion", "man"),
)


def application(arguments: Sequence[str]) -> typer.Typer:
    """The command with all of its commands, or with only the one that ``arguments`` name.

    Typer makes a parser for each command that it knows, and for that each is imported: three quarters of the start of
    ``--version``, which needs none.
    """
    first, second = [*arguments, "", ""][:2]
    if first == "--version":
        return _empty()
    if first == "archive" and second in _OF_ARCHIVE:
        return _of_archive()
    in_store, in_table, others = _IN_STORE, _IN_TABLE, _OTHERS
    if first == "store" and second in _IN_STORE:
        in_store, in_table, others = (second,), (), ()
    elif first == "table":
        in_store, others = (), ()
    elif first in _OTHERS:
        in_store, in_table, others = (), (), (first,)
    elif first in ("admin", "mqadmin"):
        in_store, in_table, others = (), (), ()
    app = _empty()
    store = typer.Typer(no_args_is_help=True, help="Look into a store directory, recover it, put messages into it.")
    for name in in_store:
        store.command(help=help_text(_command(name)))(_command(name))
    if in_store:
        app.add_typer(store, name="store")
    table = typer.Typer(no_args_is_help=True, help="Land topics in tables of Delta, Iceberg or Parquet.")
    for name in in_table:
        command = _command(name, "table.")
        table.command(help=help_text(command))(command)
    if in_table:
        app.add_typer(table, name="table")
    for name in others:
        app.command(help=help_text(_command(name)))(_command(name))
    if first == "admin" or in_store == _IN_STORE:
        from gantrymq.cli.admin.commands import admin_application

        app.add_typer(admin_application(arguments[1:]), name="admin")
    if first == "mqadmin" or in_store == _IN_STORE:
        from gantrymq.cli.admin.mqadmin import mqadmin

        # Its options are mqadmin's, -h and --help among them.
        raw = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}
        app.command(context_settings=raw)(mqadmin)
    return app


def _empty() -> typer.Typer:
    app = typer.Typer(
        name="gantrymq",
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(main)
    return app


def _of_archive() -> typer.Typer:
    app, archive = _empty(), typer.Typer(no_args_is_help=True, help="Check or restore an archive.")
    for name in _OF_ARCHIVE:
        command = getattr(import_module("gantrymq.cli.archive"), name)
        archive.command(help=help_text(command))(command)
    app.add_typer(archive, name="archive")
    return app


def _command(name: str, folder: str = "") -> Any:
    return getattr(import_module(f"gantrymq.cli.{folder}{name}"), name)


def _print_version(wanted: bool) -> None:
    if wanted:
        from gantrymq.cli.version import version_lines

        print(*version_lines(), sep="\n")
        raise typer.Exit


def main(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print version and origin, and exit."),
    ] = False,
) -> None:
    """Apache RocketMQ's store and broker in Python: look into them, recover, serve, administer.

    Exit codes: 0 done, 1 findings, 2 usage, 3 cannot.

    Examples of use:

        gantrymq store info /data/store
        gantrymq store dump /data/store --topic orders --json
        gantrymq store recover /data/store --dry-run
        gantrymq serve --store /data/store
        gantrymq admin topic list -n 127.0.0.1:9876
    """
