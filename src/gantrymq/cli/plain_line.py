"""The plain command lines of a recovery and a rebuild: a store, and flags without a value.

Importing typer and making its parsers takes 25 ms, a tenth of the recovery of a small store.
``tests/cli/test_plain_line.py`` checks that typer reads these lines the same way. All other lines are left to typer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path

# Command: module and function that do the work, and its flags with their parameter names.
_COMMANDS = {
    "recover": ("recovery", "recover_store", {"--dry-run": "dry_run", "--json": "json"}),
    "rebuild": ("rebuilding", "rebuild_store", {"--queues": "queues", "--index": "index", "--json": "json"}),
}


def plain_command(arguments: Sequence[str]) -> Callable[[], int] | None:
    """The function that runs the command and returns its exit code; None if the line is not a plain one."""
    if len(arguments) < 3 or arguments[0] != "store" or arguments[1] not in _COMMANDS:
        return None
    (module, function, flags), words = _COMMANDS[arguments[1]], arguments[2:]
    given = {word for word in words if word.startswith("-")}
    stores = [word for word in words if not word.startswith("-")]
    if len(stores) != 1 or not flags.keys() >= given:
        return None
    work = getattr(import_module(f"gantrymq.cli.{module}"), function)
    return partial(work, Path(stores[0]), **{flags[flag]: True for flag in given})
