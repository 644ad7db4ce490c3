"""What must not be started in silence: a key or a content of a store that RocketMQ acts on and gantrymq does not.

A warning is enough where only speed or log files differ. Where it differs who may connect, what is delivered, where
data lies or what is kept, the start is refused before anything is touched, and the operator says by name what he
accepts: ``acceptWithoutEffect=KEY,KEY``.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import Enum

from gantrymq.errors import NotHonouredError

ACCEPT = "acceptWithoutEffect"


class Level(Enum):
    """Whether a reason stops a start."""

    REFUSED = "refused"
    WARNING = "warning"


class Subject(Enum):
    """What a reason is about: a key of a configuration, a path below the store directory, or a topic."""

    KEY = "key"
    PATH = "path"
    TOPIC = "topic"


@dataclass(frozen=True)
class Reason:
    """One reason why a start is refused, or deserves a warning.

    ``name`` is the key, the path relative to the store directory or the topic, and the name under which it is accepted.
    ``group`` is another accepted name, which stands for all reasons of a kind (``cleanup.policy`` for every compaction
    topic); empty without one. ``text`` says value and consequence, ``remedy`` what to do. A reason that is not
    ``acceptable`` refuses a start whatever acceptWithoutEffect names.
    """

    level: Level
    subject: Subject
    name: str
    text: str
    remedy: str
    group: str = ""
    acceptable: bool = True

    @property
    def line(self) -> str:
        """The reason as one line for people."""
        return f"{self.text}; {self.remedy}"

    def is_accepted(self, accepted: Collection[str]) -> bool:
        """Whether it is acceptable and one of its names is ``accepted``."""
        return self.acceptable and (self.name in accepted or (self.group != "" and self.group in accepted))


def accepted_names(text: str) -> frozenset[str]:
    """The names in the value of ``acceptWithoutEffect``, separated by commas."""
    return frozenset(name for part in text.split(",") if (name := part.strip()))


def require_honoured(reasons: Iterable[Reason], accepted: Collection[str]) -> list[Reason]:
    """Return the refused reasons that are ``accepted``. Raises NotHonouredError for the first that is not."""
    refused = [reason for reason in reasons if reason.level is Level.REFUSED]
    for reason in refused:
        if not reason.is_accepted(accepted):
            more = sum(not other.is_accepted(accepted) for other in refused) - 1
            raise NotHonouredError(reason.name, reason.line, more, is_acceptable=reason.acceptable)
    return refused
