"""The pages commands/ of the site: every command with its arguments, options and examples, from what --help shows."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import typer

from gantrymq.cli.admin.mqadmin import SUBCOMMANDS
from gantrymq.cli.application import application

STREAMS = ("produce", "consume")
NOTE = "`scripts/commands_page.py` makes this page from the command line itself."
RULES = (
    "[The command line](../cli.md) has the rules for all commands: output, exit codes, times, settings, JSON shapes."
)
# File of the page: its title, its introduction, and which commands it has, by their words.
PAGES = {
    "store.md": (
        "Store commands",
        "They look into a store directory, recover it, and put messages into it. No broker is needed.",
    ),
    "streams.md": ("Produce and consume", "They send messages to topics, and print the messages of topics."),
    "servers.md": ("Servers and other commands", "Servers run until SIGTERM or Ctrl-C."),
    "admin.md": (
        "Administration",
        "They look into a running cluster and change it. [Administration](../admin.md) has output, exit codes and "
        "mqadmin's names.",
    ),
}
_EXAMPLES = "Examples of use:"
_RUN_BY = "<!-- run by: tests/cli/test_documented_commands.py -->"


def pages() -> dict[str, str]:
    """The text of each page by the name of its file."""
    commands = dict(commands_of(typer.main.get_command(application([])), ()))
    texts = {}
    for name, (title, introduction) in PAGES.items():
        parts = [f"# {title}\n", f"{introduction}\n", f"{RULES}\n", f"{NOTE}\n"]
        parts += [entry(words, command) for words, command in commands.items() if page_of(words) == name]
        texts[name] = "\n".join(parts)
    return {"index.md": index(commands), **texts}


def commands_of(command: Any, words: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    """(words, command) of each command below a group, in the order of its help. mqadmin has its own options."""
    if not hasattr(command, "commands"):
        yield " ".join(words), command
        return
    for name, below in command.commands.items():
        if name != "mqadmin":
            yield from commands_of(below, (*words, name))


def page_of(words: str) -> str:
    """The file of the page that has a command."""
    first = words.split(maxsplit=1)[0]
    if first in STREAMS:
        return "streams.md"
    return f"{first}.md" if f"{first}.md" in PAGES else "servers.md"


def index(commands: dict[str, Any]) -> str:
    """The list of all commands."""
    lines = ["# Commands and options\n", f"{RULES}\n", f"{NOTE}\n", "| command | |", "|---|---|"]
    for words, command in commands.items():
        link = f"[`gantrymq {words}`]({page_of(words)}#{anchor(words)})"
        lines.append(f"| {link} | {cell(purpose(command)[0])} |")
    lines.append(
        "| [`gantrymq mqadmin NAME …`](../admin.md#mqadmins-names) | the names and option letters of mqadmin |"
    )
    return "\n".join([*lines, ""])


def mqadmin() -> str:
    """The table of mqadmin's names in admin.md."""
    rows = (f"| `{name}` | `{row.words}` |" for name, row in sorted(SUBCOMMANDS.items()))
    return "\n".join(["| mqadmin | gantrymq admin |", "|---|---|", *rows])


def anchor(words: str) -> str:
    """The anchor of a command's heading."""
    return f"gantrymq {words}".replace(" ", "-")


def purpose(command: Any) -> tuple[str, list[str], list[str]]:
    """First sentence, paragraphs and examples of a command's docstring."""
    text = inspect.cleandoc(command.help or "").replace("\b\n", "")
    described, _, examples = text.partition(_EXAMPLES)
    paragraphs = [" ".join(one.split()) for one in described.split("\n\n") if one.strip()]
    first = re.match(r"(.*?[.!?])(?:\s|$)", paragraphs[0])
    lines = [line.strip() for line in examples.splitlines() if line.strip()]
    return first[1] if first else paragraphs[0], paragraphs, lines


def entry(words: str, command: Any) -> str:
    """One command: what it does, how it is called, its arguments and options, and its examples."""
    _, paragraphs, examples = purpose(command)
    context = typer.Context(command, info_name=f"gantrymq {words}")
    lines = [f"## gantrymq {words}\n", *(f"{prose(one)}\n" for one in paragraphs)]
    pieces = " ".join(re.sub(r"\{(\w+)\}", r"\1", one) for one in command.collect_usage_pieces(context))
    lines.append(f"`gantrymq {words} {pieces}`\n")
    shown = [one for one in command.params if one.name != "help" and not getattr(one, "hidden", False)]
    if shown:
        lines += ["| argument or option | default | |", "|---|---|---|", *(row(one, context) for one in shown), ""]
    if examples:
        lines += [f"{_RUN_BY}", "```bash", *examples, "```", ""]
    return "\n".join(lines)


def row(parameter: Any, context: Any) -> str:
    """The row of an argument or an option."""
    if parameter.param_type_name == "argument":
        name = f"`{parameter.make_metavar(context)}`"
    else:
        name = ", ".join(f"`{one}`" for one in [*parameter.opts, *parameter.secondary_opts])
        if not parameter.is_flag:
            name += f" `{parameter.make_metavar(context)}`"
    return f"| {cell(name)} | {cell(default(parameter))} | {cell(prose(parameter.help or ''))} |"


def default(parameter: Any) -> str:
    """The default as --help shows it."""
    if isinstance(parameter.show_default, str):
        return f"`{parameter.show_default}`"
    value = parameter.default
    if value in (None, False, (), []) or not parameter.show_default or callable(value):
        return "required" if parameter.required else ""
    value = getattr(value, "value", value)
    return f"`{value}`"


def prose(text: str) -> str:
    """A help text as Markdown: without rich's escapes, with what looks like HTML escaped."""
    text = re.sub(r"\\\[", "[", text)
    return re.sub(r"[<*_]", lambda found: f"\\{found[0]}", " ".join(text.split()))


def cell(text: str) -> str:
    """A text that may stand in a table."""
    return text.replace("|", "\\|")
