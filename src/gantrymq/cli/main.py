"""The entry point: joins the commands, and turns their exceptions into one line on stderr and an exit code.

====  ======================================================================================
code  meaning
====  ======================================================================================
0     done
1     findings: something is unreadable or damaged, or an input line was rejected
2     usage: an unknown option, a bad value, a bad setting
3     failed: no store, locked, disk full, no permission, ambiguous, or a fault of gantrymq
130   interrupted (143: by SIGTERM)
141   the reader of stdout is gone
====  ======================================================================================

A recovery or rebuild with a store and flags only is parsed here, without typer: importing typer and making its parsers
takes 25 ms, a tenth of the recovery of a small store. ``tests/cli/test_plain_line.py`` checks that typer reads these
lines the same way.
"""

from __future__ import annotations

import codecs
import gc
import os
import resource
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from typing import NoReturn

from gantrymq.cli.terminal import CANNOT, DONE, UNREADABLE_HELP, USAGE, is_unreadable, print_error
from gantrymq.errors import ConfigError, GantrymqError

INTERRUPTED = 130
NO_READER = 141
DEBUG_VARIABLE = "GANTRYMQ_DEBUG"
_ENCODED = "gantrymq.encoded"
_EXTRAS = {  # module: extra of pip install
    "google": "grpc", "grpc": "grpc", "jinja2": "console", "pyarrow": "arrow", "pyspark": "spark",
    "starlette": "console", "uvicorn": "console",
}  # fmt: skip


def run(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command and exit with its code."""
    _open_what_is_closed()
    _allow_many_descriptors()
    if isinstance(sys.stdout, TextIOWrapper) and sys.stdout.errors in ("strict", "surrogateescape"):
        codecs.register_error(_ENCODED, _encoded)
        sys.stdout.reconfigure(errors=_ENCODED)
    try:
        code = exit_code(arguments)
    except BrokenPipeError:
        code = NO_READER
    try:
        sys.stdout.flush()
    except OSError:  # already reported
        _give_up_stdout()
    gc.freeze()  # otherwise the interpreter walks through all objects at its end
    sys.exit(code)


def _allow_many_descriptors() -> None:
    """Raise this process's limit of open files to the maximum, as the JVM does: a queue takes one or two files."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):  # some systems refuse an infinite limit
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _encoded(error: UnicodeError) -> tuple[str | bytes, int]:
    r"""Keep a byte of a file name as it is; escape other characters that stdout's encoding lacks as ``\u20ac``."""
    assert isinstance(error, UnicodeEncodeError)
    one = UnicodeEncodeError(error.encoding, error.object, error.start, error.start + 1, error.reason)
    try:
        return codecs.lookup_error("surrogateescape")(one)
    except UnicodeError:
        return codecs.backslashreplace_errors(one)


def _open_what_is_closed() -> None:
    """Replace a missing stdout or stderr with /dev/null.

    The replacement gets the same descriptor number. Otherwise a file of the store could get it, and libraries would
    print into that file.
    """
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            if nowhere != descriptor:
                os.dup2(nowhere, descriptor)
                os.close(nowhere)
            setattr(sys, name, os.fdopen(descriptor, "w", encoding="utf-8"))


def exit_code(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code; prints one line on stderr after a failure. Raises BrokenPipeError."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        command = plain_command(arguments)
        code = command() if command else _parsed(arguments)
        sys.stdout.flush()
        return code
    except SystemExit as error:
        if isinstance(error.__context__, BrokenPipeError):  # rich replaces it by an exit code of its own
            raise error.__context__ from None
        return error.code if isinstance(error.code, int) else USAGE
    except BrokenPipeError:
        raise
    except KeyboardInterrupt:
        print_error("interrupted")
        return INTERRUPTED
    except ConfigError as error:
        print_error(str(error))
        return USAGE
    except GantrymqError as error:
        print_error(f"{error}; {UNREADABLE_HELP}" if is_unreadable(error) else str(error))
        return CANNOT
    except OSError as error:
        print_error(f"{error.filename}: {error.strerror}" if error.filename else str(error))
        return CANNOT
    except Exception as error:
        return _other(error)


def _parsed(arguments: Sequence[str]) -> int:
    """Run the command with the whole parser. Its import takes as long as a short command, so it is done only here.

    The application is not called directly, because it prints its own texts and codes for an interrupt and a broken
    pipe.
    """
    from typer import Exit
    from typer.main import get_command

    from gantrymq.cli.application import application

    command = get_command(application(arguments))
    if os.environ.get("_GANTRYMQ_COMPLETE"):  # COMPLETE_VARIABLE, whose module takes its time to import
        from gantrymq.cli.completion import answer_shell

        return answer_shell(command)
    try:
        with command.make_context("gantrymq", list(arguments)) as context:
            command.invoke(context)
    except Exit as ended:
        return ended.exit_code
    return DONE


def _other(error: Exception) -> int:
    """Handle the remaining errors: usage errors of the parser, missing modules, and faults of gantrymq."""
    describe = getattr(error, "format_message", None)
    missing = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    if missing in _EXTRAS:
        print_error(f"this needs the module {missing}: pip install 'gantrymq[{_EXTRAS[missing]}]'")
        return CANNOT
    if describe is None:
        if os.environ.get(DEBUG_VARIABLE):
            raise error
        print_error(f"this is a fault of gantrymq: {type(error).__name__}: {error} ({DEBUG_VARIABLE}=1 shows where)")
        return CANNOT
    text, context = describe(), getattr(error, "ctx", None)
    if text:  # without a text the help was printed, for a call without arguments
        print_error(f"{text} ({context.command_path if context else 'gantrymq'} --help says more)")
    return USAGE


def _give_up_stdout() -> None:
    """Redirect stdout to /dev/null, so that the interpreter's last flush cannot fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


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
