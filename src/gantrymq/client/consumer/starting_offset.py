"""Where the pulling of a queue begins.

Source: RebalancePushImpl.computePullFromWhereWithException, RebalanceLitePullImpl.
"""

from gantrymq.client import calls
from gantrymq.client.consumer.member import GroupMember
from gantrymq.client.consumer.offsets import OffsetStore
from gantrymq.client.consumer.settings import ConsumeFromWhere
from gantrymq.client.namespace import RETRY_PREFIX
from gantrymq.model.message_queue import MessageQueue


async def starting_offset(member: GroupMember, offsets: OffsetStore, queue: MessageQueue) -> int:
    """Where the group stopped; where it never was, as ``consume_from_where`` says.

    Raises GantrymqError where the store of offsets or the broker does not answer: to begin anywhere else would lose
    messages or repeat them.
    """
    stored = await offsets.read_from_store(queue)
    if stored is not None and stored >= 0:
        offsets.update(queue, stored)
        return stored
    is_retry = queue.topic.startswith(RETRY_PREFIX)
    where = member.config.consume_from_where
    if where is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET:
        return 0  # the broker corrects it where the first messages are gone
    if where is ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET:
        return 0 if is_retry else await member.ask(queue, calls.max_offset(queue))
    if is_retry:
        return await member.ask(queue, calls.max_offset(queue))
    timestamp_ms = member.config.parse_consume_timestamp(member.clock.now_ms())
    return await member.ask(queue, calls.search_offset(queue, timestamp_ms))
