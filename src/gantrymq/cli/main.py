"""The entry point: joins the commands, and turns their exceptions into one line on stderr and an exit code.

:mod:`gantrymq.cli.exit_codes` has the codes.
"""

from __future__ import annotations

import codecs
import gc
import os
import resource
import sys
from collections.abc import Sequence
from contextlib import suppress
from io import TextIOWrapper
from typing import NoReturn

from gantrymq.cli.exit_codes import code_of
from gantrymq.cli.terminal import DONE, UNREADABLE_HELP, USAGE, is_unreadable, print_error
from gantrymq.errors import GantrymqError

DEBUG_VARIABLE = "GANTRYMQ_DEBUG"
_ENCODED = "gantrymq.encoded"
_EXTRAS = {  # module: extra of pip install
    "deltalake": "delta",
    "duckdb": "sql",
    "fastavro": "typed",
    "google": "grpc",
    "hpack": "grpc",
    "jinja2": "console",
    "jsonschema_rs": "typed",
    "pyarrow": "arrow",
    "pyiceberg": "iceberg",
    "pyspark": "spark",
    "rocksdict": "rocksdb",
    "sqlalchemy": "iceberg",
    "starlette": "console",
    "uvicorn": "console",
    "yaml": "acl",
}


def run(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command and exit with its code."""
    _forgo_pandas(sys.argv[1:] if arguments is None else arguments)
    _open_what_is_closed()
    _allow_many_descriptors()
    if isinstance(sys.stdout, TextIOWrapper) and sys.stdout.errors in ("strict", "surrogateescape"):
        codecs.register_error(_ENCODED, _encoded)
        sys.stdout.reconfigure(errors=_ENCODED)
    try:
        code = exit_code(arguments)
    except BrokenPipeError as error:
        code = code_of(error)
    try:
        sys.stdout.flush()
    except OSError:  # already reported
        _give_up_stdout()
    gc.freeze()  # otherwise the interpreter walks through all objects at its end
    sys.exit(code)


class _WithoutPandas:
    """A finder that finds no pandas. A None in sys.modules would do, but DuckDB reads the version of what is there."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("not needed here", name=name)


def _forgo_pandas(arguments: Sequence[str]) -> None:
    """Let `sql` run without pandas, which pyarrow.dataset imports if it can: that takes most of a second of CPU."""
    if arguments[:1] == ["sql"]:
        sys.meta_path.insert(0, _WithoutPandas)


def _allow_many_descriptors() -> None:
    """Raise this process's limit of open files to the maximum, as the JVM does: a queue takes one or two files."""
    _, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):  # some systems refuse an infinite limit
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard_limit, hard_limit))


def _encoded(error: UnicodeError) -> tuple[str | bytes, int]:
    r"""Keep a byte of a file name as it is; escape other characters that stdout's encoding lacks as ``\u20ac``."""
    assert isinstance(error, UnicodeEncodeError)
    character_error = UnicodeEncodeError(error.encoding, error.object, error.start, error.start + 1, error.reason)
    try:
        return codecs.lookup_error("surrogateescape")(character_error)
    except UnicodeError:
        return codecs.backslashreplace_errors(character_error)


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
        code = _parsed(arguments)
        sys.stdout.flush()
        return code
    except SystemExit as error:
        if isinstance(error.__context__, BrokenPipeError):  # rich replaces it by an exit code of its own
            raise error.__context__ from None
        return error.code if isinstance(error.code, int) else USAGE
    except BrokenPipeError:
        raise
    except (KeyboardInterrupt, GantrymqError, OSError) as error:
        print_error(_text(error))
        return code_of(error)
    except Exception as error:
        return _other(error)


def _text(error: KeyboardInterrupt | GantrymqError | OSError) -> str:
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    if isinstance(error, GantrymqError):
        return f"{error}; {UNREADABLE_HELP}" if is_unreadable(error) else str(error)
    return f"{error.filename}: {error.strerror}" if error.filename else str(error)


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
        return code_of(error)
    if describe is None:
        if os.environ.get(DEBUG_VARIABLE):
            raise error
        print_error(f"this is a fault of gantrymq: {type(error).__name__}: {error} ({DEBUG_VARIABLE}=1 shows where)")
        return code_of(error)
    text, context = describe(), getattr(error, "ctx", None)
    if text:  # without a text the help was printed, for a call without arguments
        print_error(f"{text} ({context.command_path if context else 'gantrymq'} --help says more)")
    return USAGE


def _give_up_stdout() -> None:
    """Redirect stdout to /dev/null, so that the interpreter's last flush cannot fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
