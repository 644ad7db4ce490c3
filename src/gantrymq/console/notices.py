"""Texts that the page after a redirect shows once: what a change did."""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from dataclasses import dataclass

_MOST = 200


@dataclass(frozen=True)
class Notice:
    """A text about the last change."""

    text: str
    is_problem: bool


class Notices:
    """The texts that are not shown yet, at most 200. Thread rule: any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: OrderedDict[str, Notice] = OrderedDict()

    def add(self, text: str, *, is_problem: bool = False) -> str:
        """Keep a text, and return the number under which the next page finds it."""
        number = secrets.token_urlsafe(8)
        with self._lock:
            self._waiting[number] = Notice(text, is_problem)
            while len(self._waiting) > _MOST:
                self._waiting.popitem(last=False)
        return number

    def take(self, number: str) -> Notice | None:
        """The text, which is then forgotten; None if there is none."""
        with self._lock:
            return self._waiting.pop(number, None)
