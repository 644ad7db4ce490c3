"""The queues that a scan or a dispatcher has met, numbered as they turned up.

Thread rule: belongs to one thread at a time.
"""

from __future__ import annotations

from gantrymq.kernels.queue_table import QueueTable, grow, new_table, queue_count, queue_of


class SeenQueues:
    """A kernel's table with the queues' names: ``names[i]``, topic and queue id, is the queue of ordinal i."""

    def __init__(self) -> None:
        self.table: QueueTable = new_table()
        self.names: list[tuple[bytes, int]] = []

    def grow(self) -> None:
        """Make room for more queues."""
        self.table = grow(self.table)

    def note(self) -> None:
        """Take the names of what a kernel has put into the table."""
        for ordinal in range(len(self.names), queue_count(self.table)):
            self.names.append(queue_of(self.table, ordinal))
