"""The settings in force of an open store, and the list of the parts that follow them.

The obvious way, a part that copies what it needs of the settings in its constructor, fails once a key may be changed
while the store is open: the part keeps the old value, and the broker shows the new one. So a part of this list has an
attribute ``config``, which it reads again at each use.

``tests/broker/test_live_keys.py`` compares a broker whose keys were changed with a broker that was started with them,
and names a part that keeps an old value.
"""

from __future__ import annotations

from typing import Protocol, TypeVar

from gantrymq.config.keys import require_same_at_start
from gantrymq.config.settings import MessageStoreConfig


class Configurable(Protocol):
    """A part that reads ``config`` again at each use, so that it can be replaced."""

    config: MessageStoreConfig


P = TypeVar("P", bound=Configurable)


class Live:
    """The settings in force, ``config``, and all parts of the store that read them while it is open.

    Thread rule: one thread replaces the settings, as a whole. Any thread reads them.
    """

    def __init__(self, config: MessageStoreConfig) -> None:
        self.config = config
        self._parts: list[Configurable] = []

    def add(self, part: P) -> P:
        """Let ``part`` follow the settings. Returns it."""
        self._parts.append(part)
        return part

    def replace(self, config: MessageStoreConfig) -> None:
        """Use other settings from now on. Raises ConfigError if one differs that is only read ``at_start``."""
        require_same_at_start(self.config, config)
        self.config = config
        for part in self._parts:
            part.config = config
