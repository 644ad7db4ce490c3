"""The columns of a message as Arrow has them: those of ``format("rocketmq")``, for whoever has no Spark."""

from __future__ import annotations

import pyarrow as pa

_TIMESTAMP = pa.timestamp("us", tz="UTC")

MESSAGE_SCHEMA = pa.schema(
    [
        pa.field("topic", pa.string(), nullable=False),
        pa.field("broker", pa.string()),
        pa.field("queue_id", pa.int32(), nullable=False),
        pa.field("queue_offset", pa.int64(), nullable=False),
        pa.field("body", pa.binary(), nullable=False),
        pa.field("tags", pa.string()),
        pa.field("keys", pa.list_(pa.field("element", pa.string())), nullable=False),
        pa.field("properties", pa.map_(pa.string(), pa.string()), nullable=False),
        pa.field("msg_id", pa.string(), nullable=False),
        pa.field("born_timestamp", _TIMESTAMP),
        pa.field("store_timestamp", _TIMESTAMP),
        pa.field("born_host", pa.string(), nullable=False),
        pa.field("store_host", pa.string(), nullable=False),
        pa.field("flag", pa.int32(), nullable=False),
        pa.field("sys_flag", pa.int32(), nullable=False),
        pa.field("reconsume_times", pa.int32(), nullable=False),
        pa.field("phy_offset", pa.int64(), nullable=False),
        pa.field("size", pa.int32(), nullable=False),
        pa.field("body_crc", pa.int32(), nullable=False),
    ]
)
