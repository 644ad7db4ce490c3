"""The plain command lines of a recovery and a rebuild: a store, and flags that take no value.

To import typer and let it make its parsers is 25 ms of a start, a tenth of what a small store takes to recover.
``tests/cli/test_plain_line.py`` holds that whatever is read here typer reads alike; the rest is left to it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path

# What does the work of a command, by module and function, and its flags by the name of their parameter.
_COMMANDS = {
    "recover": ("recovery", "recover_store", {"--dry-run": "dry_run", "--json": "json"}),
    "rebuild": ("rebuilding", "rebuild_store", {"--queues": "queues", "--index": "index", "--json": "json"}),
}


def plain_command(arguments: Sequence[str]) -> Callable[[], int] | None:
    """What carries the command out and returns its exit code; None where the line is not a plain one."""
    if len(arguments) < 3 or arguments[0] != "store" or arguments[1] not in _COMMANDS:
        return None
    (module, function, flags), words = _COMMANDS[arguments[1]], arguments[2:]
    given = {word for word in words if word.startswith("-")}
    stores = [word for word in words if not word.startswith("-")]
    if len(stores) != 1 or not flags.keys() >= given:
        return None
    work = getattr(import_module(f"gantrymq.cli.{module}"), function)
    return partial(work, Path(stores[0]), **{flags[flag]: True for flag in given})
