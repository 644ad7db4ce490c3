"""The mode in which a group consumes a topic, PULL or POP, as set by SET_MESSAGE_REQUEST_MODE.

The table is kept in ``config/messageRequestMode.json``, as RocketMQ keeps it.

Thread rule: the event loop's thread.

Source: MessageRequestModeManager.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from gantrymq.broker.tables.versioned_table import persisted
from gantrymq.errors import RemotingError
from gantrymq.remoting.bodies.client import MessageRequestModes, SetMessageRequestModeRequestBody

PULL, POP = "PULL", "POP"
MAX_MODES = 100_000

_Table = dict[str, dict[str, SetMessageRequestModeRequestBody]]


class MessageRequestModeManager:
    """The modes by topic and group. ``edits`` counts changes, so that a caller can see whether to save."""

    def __init__(self) -> None:
        self._table: _Table = {}
        self._count = 0
        self.edits = 0

    def __len__(self) -> int:
        return self._count

    def get(self, topic: str, group: str) -> SetMessageRequestModeRequestBody | None:
        """The mode that was set for a group and topic, or None."""
        return self._table.get(topic, {}).get(group)

    def set(self, given: SetMessageRequestModeRequestBody) -> None:
        """Set a mode. Raises RemotingError if MAX_MODES pairs of group and topic have one."""
        is_new = self.get(given.topic, given.consumer_group) is None
        if is_new and self._count >= MAX_MODES:
            raise RemotingError(f"message request modes are set for {MAX_MODES} pairs of topic and group, and no more")
        self._table.setdefault(given.topic, {})[given.consumer_group] = given
        self._count += is_new
        self.edits += 1

    def follow(self, master: MessageRequestModes) -> None:
        """Take a master's modes, at a slave."""
        if master.message_request_mode_map != self._table:
            self._table = master.message_request_mode_map
            self._count = sum(map(len, self._table.values()))
            self.edits += 1

    def snapshot(self) -> Callable[[], dict[str, Any]]:
        """A function that makes the content of messageRequestMode.json. It may run on any thread."""
        return partial(persisted, self.copy())

    def copy(self) -> MessageRequestModes:
        """A copy of the table: the modes by topic and group."""
        return MessageRequestModes(
            message_request_mode_map={topic: dict(groups) for topic, groups in self._table.items()}
        )

    def load(self, value: dict[str, Any]) -> None:
        """Load the content of messageRequestMode.json. Raises msgspec.ValidationError."""
        self._table = msgspec.convert(value, MessageRequestModes, strict=False).message_request_mode_map
        self._count = sum(map(len, self._table.values()))
