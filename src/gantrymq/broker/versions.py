"""How new a table is, as name servers and slaves compare it. Source: DataVersion."""

from gantrymq.clock import Clock
from gantrymq.remoting.bodies.topic import DataVersion


class TableVersion:
    """The version of a table that changes. ``value`` is replaced, never changed, so that it may be kept."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.value = DataVersion(timestamp=clock.now_ms())

    def next(self) -> None:
        """The table has changed."""
        self.value = DataVersion(timestamp=self._clock.now_ms(), counter=self.value.counter + 1)
