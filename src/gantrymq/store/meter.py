"""What the store calls to measure the deliveries of delayed and timer messages. This class measures nothing.

Thread rule: the runners' threads.

Source: DefaultStoreMetricsManager; ScheduleMessageService.
"""


class StoreMeter:
    """Methods that do nothing, for a subclass to override."""

    def delivered(self, topic: str, size_bytes: int) -> None:
        """A delayed message was put into its topic, as a record of ``size_bytes``."""

    def timer_enqueued(self, topic: str, delay_s: int) -> None:
        """A timer message was scheduled. Its sender asked for ``delay_s`` seconds."""

    def timer_dequeued(self, topic: str, messages: int = 1) -> None:
        """Timer messages of a topic were delivered, or put back because they are due much later."""


NO_METER = StoreMeter()
