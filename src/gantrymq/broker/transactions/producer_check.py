"""CHECK_TRANSACTION_STATE: the broker asks a producer of the group for the result of a transaction.

Any producer of the group may answer, on any connection. The producers are asked in turn. The answer is an
END_TRANSACTION. Without a producer the message waits for its next check.

Source: AbstractTransactionalMessageCheckListener.sendCheckMessage, Broker2Client.checkProducerTransactionState.
"""

from __future__ import annotations

import asyncio

from gantrymq.broker.sessions.producers import ProducerManager
from gantrymq.broker.transactions.half_messages import real_queue, wire_record
from gantrymq.config.broker_settings import LiveConfig
from gantrymq.model.message import PROPERTY_PRODUCER_GROUP, PROPERTY_UNIQ_KEY, StoredMessage
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.headers.send import CheckTransactionStateRequestHeader
from gantrymq.remoting.transport.limited_log import LimitedLog


class ProducerCheck:
    """Sends checks to producers. Thread rule: the event loop's thread."""

    def __init__(self, config: LiveConfig, producers: ProducerManager) -> None:
        self._config, self._producers = config, producers
        self._log = LimitedLog(asyncio.get_running_loop().time)

    def ask(self, half: StoredMessage) -> None:
        """Ask about a half message. If no producer of its group is connected, log that."""
        group = half.properties.get(PROPERTY_PRODUCER_GROUP)
        channel = self._producers.next_channel(group) if group is not None else None
        queue = real_queue(half)
        if channel is None or queue is None:
            self._log.warning("no producer can be asked about a transaction", group=group, offset=half.phy_offset)
            return
        unique_key = half.properties.get(PROPERTY_UNIQ_KEY)
        header = CheckTransactionStateRequestHeader(
            topic=half.topic,
            tran_state_table_offset=half.queue_offset,
            commit_log_offset=half.phy_offset,
            msg_id=unique_key,
            transaction_id=unique_key,
            offset_msg_id=half.msg_id,
            bname=self._config.broker.broker_name,
        )
        channel.invoke_oneway(RemotingCommand.request(header, wire_record(half, *queue)))
