"""The parts that the commands ``user`` and ``acl`` share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gantrymq.cli.admin.session import Session, Target

if TYPE_CHECKING:
    from gantrymq.errors import MQClientError

CopySource = Annotated[str, typer.Option("--from", metavar="BROKER", help="Copy from this broker.", show_default=False)]
CopyTarget = Annotated[str, typer.Option("--to", metavar="BROKER", help="Copy to this broker.", show_default=False)]
ACTIONS = ("Pub", "Sub", "Create", "Update", "Delete", "Get", "List")
DONE_COLUMNS = {"brokerName": "broker", "address": "address", "subject": "of", "done": "done"}


def choice(*names: str) -> Callable[[str], str]:
    """A parser of one of ``names``, in any case. RocketMQ's brokers take or drop an unknown name in silence."""

    def chosen(text: str) -> str:
        name = next((name for name in names if name.lower() == text.strip().lower()), None)
        if name is None:
            raise typer.BadParameter(f"{text!r} is none of {', '.join(names)}")
        return name

    return chosen


def change_access(
    session: Session, targets: list[Target], subject: str, done: str, call: Callable[[Target], object]
) -> None:
    """Change something at each broker, and print a row for each."""
    answers = session.each(targets, call)
    rows = [{**target.fields(), "subject": subject, "done": done} for target, _ in answers]
    session.rows(rows, DONE_COLUMNS)


def missing(kind: str, name: str) -> MQClientError:
    """The error for a user or a subject that no broker has."""
    from gantrymq.errors import MQClientError

    return MQClientError(f"there is no {kind} {name}; `gantrymq admin {kind} list` shows what there is")


def one_broker(session: Session, broker: str) -> Target:
    """The first broker of a name or an address."""
    return session.brokers(broker)[0]


def entry_text(entry: Mapping[str, Any]) -> str:
    """An entry of a policy as one line for people."""
    sources = ", ".join(entry.get("sourceIps", ["anywhere"]))
    return f"{entry['decision']} {', '.join(entry['actions'])} of {entry['resource']} from {sources}"
