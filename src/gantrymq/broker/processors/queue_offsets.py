"""GET_MAX_OFFSET, GET_MIN_OFFSET, SEARCH_OFFSET_BY_TIMESTAMP and GET_EARLIEST_MSG_STORETIME.

Source: AdminBrokerProcessor.
"""

from __future__ import annotations

from gantrymq.remoting.codes import ResponseCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.headers.offset import (
    GetEarliestMsgStoretimeRequestHeader,
    GetEarliestMsgStoretimeResponseHeader,
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetRequestHeader,
    GetMinOffsetResponseHeader,
    SearchOffsetRequestHeader,
    SearchOffsetResponseHeader,
)
from gantrymq.remoting.transport.channel import Channel
from gantrymq.store.message_store import MessageStore

_UPPER = "upper"  # BoundaryType.UPPER


class QueueOffsetProcessor:
    """Where queues begin and end, and where they were at a time."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store

    def max_offset(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """GET_MAX_OFFSET."""
        asked = request.read(GetMaxOffsetRequestHeader)
        store = self._store
        offset_of = store.max_offset_in_queue if asked.committed else store.next_offset_in_queue
        offset = offset_of(asked.topic, asked.queue_id)
        return request.response(ResponseCode.SUCCESS, header=GetMaxOffsetResponseHeader(offset=offset))

    def min_offset(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """GET_MIN_OFFSET."""
        asked = request.read(GetMinOffsetRequestHeader)
        offset = self._store.min_offset_in_queue(asked.topic, asked.queue_id)
        return request.response(ResponseCode.SUCCESS, header=GetMinOffsetResponseHeader(offset=offset))

    def search(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """SEARCH_OFFSET_BY_TIMESTAMP: the first message at or after a time, or (upper) the last at or before it."""
        asked = request.read(SearchOffsetRequestHeader)
        topic, queue_id, timestamp_ms = asked.topic, asked.queue_id, asked.timestamp
        if (asked.boundary_type or "").lower() == _UPPER:
            offset = max(self._store.offset_at(topic, queue_id, timestamp_ms + 1) - 1, 0)
        else:
            offset = self._store.offset_at(topic, queue_id, timestamp_ms)
        return request.response(ResponseCode.SUCCESS, header=SearchOffsetResponseHeader(offset=offset))

    def earliest(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """GET_EARLIEST_MSG_STORETIME."""
        asked = request.read(GetEarliestMsgStoretimeRequestHeader)
        first = self._store.min_offset_in_queue(asked.topic, asked.queue_id)
        timestamp_ms = self._store.store_timestamp_ms(asked.topic, asked.queue_id, first)
        header = GetEarliestMsgStoretimeResponseHeader(timestamp=timestamp_ms)
        return request.response(ResponseCode.SUCCESS, header=header)
