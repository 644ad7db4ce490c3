"""The entry point: joins the commands, and turns what they raise into one line on stderr and an exit code.

====  ======================================================================================
code  meaning
====  ======================================================================================
0     done
1     findings: something unreadable was met, an input line was rejected
2     usage: an unknown option, a bad value, a bad setting
3     cannot: no store, locked, disk full, no permission, ambiguous, or a fault of gantrymq
130   interrupted (143: by SIGTERM)
141   nobody reads the output any more
====  ======================================================================================
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from io import TextIOWrapper
from typing import Annotated, Any, NoReturn

import typer

from gantrymq.cli.messages import CANNOT, USAGE, say
from gantrymq.errors import ConfigError, GantrymqError
from gantrymq.fs.descriptor_limit import allow_many_descriptors

INTERRUPTED = 130
NO_READER = 141
DEBUG_VARIABLE = "GANTRYMQ_DEBUG"

# Each is a function in a module of its name.
_IN_STORE: tuple[str, ...] = (
    *("info", "dump", "log", "query", "at", "verify", "export"),
    *("recover", "rebuild", "salvage", "ingest"),
)
_OTHERS: tuple[str, ...] = ("serve", "namesrv", "broker", "demo", "bench")


def application(arguments: Sequence[str]) -> typer.Typer:
    """The command with all of its commands, or with none but the one that is asked for.

    Typer makes a parser of each that it knows; for all of them that takes a tenth of a start.
    """
    first, second = [*arguments, "", ""][:2]
    in_store, others = _IN_STORE, _OTHERS
    if first == "store" and second in _IN_STORE:
        in_store, others = (second,), ()
    elif first in _OTHERS:
        in_store, others = (), (first,)
    app = typer.Typer(
        name="gantrymq",
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(main)
    store = typer.Typer(no_args_is_help=True, help="Look into a store directory, recover it, put messages into it.")
    for name in in_store:
        store.command()(_command(name))
    if in_store:
        app.add_typer(store, name="store")
    for name in others:
        app.command()(_command(name))
    return app


def _command(name: str) -> Any:
    return getattr(import_module(f"gantrymq.cli.{name}"), name)


def _print_version(wanted: bool) -> None:
    if wanted:
        from gantrymq import __version__

        print(f"gantrymq {__version__}")
        raise typer.Exit


def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Apache RocketMQ's message store in Python: look into it, recover it, write.

    Exit codes: 0 done, 1 findings, 2 usage, 3 cannot.

    Examples of use:

        gantrymq store info /data/store
        gantrymq store dump /data/store --topic orders --json
        gantrymq store recover /data/store --dry-run
        gantrymq serve --store /data/store
    """


def run(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command and exit with its code."""
    _open_what_is_closed()
    allow_many_descriptors()
    if isinstance(sys.stdout, TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="surrogateescape")  # a file's name may be any bytes, and is printed as it is
    try:
        code = exit_code(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        _give_up_stdout()
        code = NO_READER
    gc.freeze()  # or the interpreter, as it ends, walks through all there is
    sys.exit(code)


def _open_what_is_closed() -> None:
    """Let what the command says go nowhere where it was started without stdout or stderr.

    Under their own descriptors: a file of a store that got one of these would get what a library prints, too.
    """
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            if nowhere != descriptor:
                os.dup2(nowhere, descriptor)
                os.close(nowhere)
            setattr(sys, name, os.fdopen(descriptor, "w", encoding="utf-8"))


def exit_code(arguments: Sequence[str] | None = None) -> int:
    """Run the command and say how it ended, in one line on stderr where it failed. Raises BrokenPipeError."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        return int(application(arguments)(arguments, prog_name="gantrymq", standalone_mode=False) or 0)
    except SystemExit as error:
        if isinstance(error.__context__, BrokenPipeError):  # typer has an exit code of its own for it
            raise error.__context__ from None
        return error.code if isinstance(error.code, int) else USAGE
    except BrokenPipeError:
        raise
    except (KeyboardInterrupt, typer.Abort):
        say("interrupted")
        return INTERRUPTED
    except ConfigError as error:
        say(str(error))
        return USAGE
    except GantrymqError as error:
        say(str(error))
        return CANNOT
    except OSError as error:
        say(f"{error.filename}: {error.strerror}" if error.filename else str(error))
        return CANNOT
    except Exception as error:
        return _other(error)


def _other(error: Exception) -> int:
    """What is left is a usage error of the parser, or a fault of ours."""
    describe = getattr(error, "format_message", None)
    if describe is None:
        if os.environ.get(DEBUG_VARIABLE):
            raise error
        say(f"this is a fault of gantrymq: {type(error).__name__}: {error} ({DEBUG_VARIABLE}=1 shows where)")
        return CANNOT
    text, context = describe(), getattr(error, "ctx", None)
    if text:  # without any, the help was asked for by giving no arguments, and has been printed
        say(f"{text} ({context.command_path if context else 'gantrymq'} --help says more)")
    return USAGE


def _give_up_stdout() -> None:
    """Let the interpreter flush what is left of stdout into nothing when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
