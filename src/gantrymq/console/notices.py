"""Messages to the user of the console about a change: the page to which the browser is redirected shows each once."""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from dataclasses import dataclass

_MAX_NOTICES = 200


@dataclass(frozen=True)
class Notice:
    """What a change did, or with ``is_problem`` why it failed. It is shown on the next page, and not again."""

    text: str
    is_problem: bool


class Notices:
    """The notices that no page has shown yet, at most 200; the oldest are dropped. Thread rule: any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: OrderedDict[str, Notice] = OrderedDict()

    def add(self, text: str, *, is_problem: bool = False) -> str:
        """Keep a text, and return the number under which the next page finds it."""
        number = secrets.token_urlsafe(8)
        with self._lock:
            self._waiting[number] = Notice(text, is_problem)
            while len(self._waiting) > _MAX_NOTICES:
                self._waiting.popitem(last=False)
        return number

    def take(self, number: str) -> Notice | None:
        """The text, which is then forgotten; None if there is none."""
        with self._lock:
            return self._waiting.pop(number, None)
