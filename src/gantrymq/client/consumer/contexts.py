"""What a listener is told besides the messages, and what it answers.

Source: ConsumeConcurrentlyContext, ConsumeConcurrentlyStatus, ConsumeOrderlyContext, ConsumeOrderlyStatus.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from gantrymq.client.consumer.listening import Listener
from gantrymq.model.message_queue import MessageQueue


class ConsumeConcurrentlyStatus(Enum):
    """Consumed, or to come again later."""

    CONSUME_SUCCESS = "CONSUME_SUCCESS"
    RECONSUME_LATER = "RECONSUME_LATER"


class ConsumeOrderlyStatus(Enum):
    """Consumed, or to come again after a pause that the whole queue makes.

    ROLLBACK and COMMIT are for a context whose ``auto_commit`` is off: SUCCESS then commits nothing.
    """

    SUCCESS = "SUCCESS"
    ROLLBACK = "ROLLBACK"
    COMMIT = "COMMIT"
    SUSPEND_CURRENT_QUEUE_A_MOMENT = "SUSPEND_CURRENT_QUEUE_A_MOMENT"


@dataclass(slots=True)
class ConsumeConcurrentlyContext:
    """Of one call of a listener; change it to say more than the status does.

    ``delay_level_when_next_consume``: -1 straight to the dead letters, 0 the broker chooses, else the delay level.
    ``ack_index``: with CONSUME_SUCCESS, the last message of the batch that was; None means all of them.
    """

    message_queue: MessageQueue
    delay_level_when_next_consume: int = 0
    ack_index: int | None = None


@dataclass(slots=True)
class ConsumeOrderlyContext:
    """Of one call of a listener. ``suspend_current_queue_time_ms`` -1 means the consumer's setting."""

    message_queue: MessageQueue
    auto_commit: bool = True
    suspend_current_queue_time_ms: int = -1


# A listener that returns nothing has consumed the messages; one that raises has not.
ConcurrentListener = Listener[ConsumeConcurrentlyContext, ConsumeConcurrentlyStatus]
OrderlyListener = Listener[ConsumeOrderlyContext, ConsumeOrderlyStatus]
MessageQueueListener = Callable[[str, tuple[MessageQueue, ...], frozenset[MessageQueue]], None]
