"""``gantrymq man``: the manual page, made of the commands and their help texts."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from gantrymq.cli.exit_codes import EXIT_CODES

if TYPE_CHECKING:
    from typer.core import TyperCommand, TyperGroup

_EXAMPLE = " " * 4
_MARKUP = re.compile(r"(?<!\\)\[/?(?:bold|italic|dim|[a-z]+ on [a-z]+|red|green|yellow|cyan)\]")
_ENVIRONMENT = """\
.SH ENVIRONMENT
.TP
.B GANTRYMQ_SET_\\fIkey\\fR
A setting of serve, broker and namesrv; two underscores stand for a dot.
.TP
.B GANTRYMQ_PROFILE, GANTRYMQ_ACCESS_KEY, GANTRYMQ_SECRET_KEY, GANTRYMQ_TLS
The connection of admin, produce and consume to a cluster.
.TP
.B GANTRYMQ_DEBUG
1 shows where a fault of gantrymq happened.
"""


def man() -> None:
    """Print the manual page as roff text.

    Examples of use:

        gantrymq man | man -l -
        gantrymq man > /usr/local/share/man/man1/gantrymq.1
    """
    sys.stdout.write(manual_page())


def manual_page() -> str:
    """The manual page as roff text."""
    from typer.main import get_command

    from gantrymq import __version__
    from gantrymq.cli.application import application

    root: Any = get_command(application(()))
    lines = [f'.TH GANTRYMQ 1 "" "gantrymq {__version__}" "User Commands"', ".SH NAME"]
    lines += [r"gantrymq \- RocketMQ's store, name server and broker: look into them, recover, serve, administer"]
    lines += [".SH SYNOPSIS", r"\fBgantrymq\fR [\fIOPTION\fR] \fICOMMAND\fR [\fIARGUMENT\fR]...", ".SH DESCRIPTION"]
    lines += _prose(root.help)
    lines += [".SH COMMANDS"]
    for words, command in _commands(root, ()):
        lines += _command(words, command)
    return "\n".join(lines) + "\n" + _ENVIRONMENT + "".join(_exit_status())


def _exit_status() -> Iterator[str]:
    yield ".SH EXIT STATUS\n"
    for row in EXIT_CODES:
        yield f".TP\n.B {row.code}\n{_escaped(row.name.capitalize())}: {_escaped(row.meaning)}.\n"


def _commands(group: TyperGroup, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], TyperCommand]]:
    """Each command that is no group, with the words that call it."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, (*words, name))  # type: ignore[arg-type]
        elif not command.hidden:
            yield (*words, name), command  # type: ignore[misc]


def _command(words: tuple[str, ...], command: TyperCommand) -> Iterator[str]:
    arguments = [param for param in command.params if param.param_type_name == "argument"]
    given = " ".join(_escaped(argument.make_metavar(_context(command))) for argument in arguments)
    yield f'.SS "gantrymq {" ".join((*words, given)).rstrip()}"'
    yield from _prose(command.help)
    for param in command.params:
        if param.param_type_name == "argument" or param.name == "help":
            continue
        yield ".TP"
        names = ", ".join([*param.opts, *param.secondary_opts])
        value = "" if getattr(param, "is_flag", False) else f" {param.make_metavar(_context(command))}"
        yield rf"\fB{_escaped(names)}\fR{_escaped(value)}"
        yield _text(getattr(param, "help", None) or "")


def _context(command: TyperCommand) -> Any:
    return command.context_class(command)


def _prose(text: str | None) -> Iterator[str]:
    """Paragraphs of a help text; an indented block keeps its lines."""
    blocks = [block for block in (text or "").split("\n\n") if block.strip()]
    for block in blocks:
        if block.startswith(_EXAMPLE):
            yield from (".RS 4", ".nf")
            yield from (_escaped(line.removeprefix(_EXAMPLE)) for line in block.splitlines())
            yield from (".fi", ".RE")
        else:
            yield from ([".PP"] if block is not blocks[0] else [])  # a heading before it begins a paragraph, too
            yield _text(block)


def _text(text: str) -> str:
    return _escaped(_MARKUP.sub("", " ".join(text.split())))


def _escaped(text: str) -> str:
    """Text that roff prints as it is."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + text if text.startswith((".", "'")) else text
