"""A message as JSON: the shape of ``consume --json``, of ``admin message`` and of exported dead letters."""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256

from gantrymq.format.body_text import body_text
from gantrymq.format.record import body_crc
from gantrymq.model.message import PROPERTY_UNIQ_KEY, StoredMessage, message_id


def message_fields(message: StoredMessage, body: bytes, broker_name: str = "") -> dict[str, object]:
    """A message whose body is as stored, with its decompressed ``body``. One of ``body`` and ``bodyBase64`` is null.

    ``msgId`` is the producer's id and ``offsetMsgId`` the broker's, as in RocketMQ's clients.
    """
    text, offset_id = body_text(body), message_id(message.store_host, message.phy_offset)
    return {
        "kind": "message",
        "topic": message.topic,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "phyOffset": message.phy_offset,
        "size": message.size_bytes,
        "flag": message.flag,
        "sysFlag": message.sys_flag,
        "bornTimestamp": message.born_timestamp_ms,
        "bornHost": str(message.born_host),
        "storeTimestamp": message.store_timestamp_ms,
        "storeHost": str(message.store_host),
        "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": message.prepared_transaction_offset,
        "bodyCRC": message.body_crc,
        "properties": message.properties,
        "bodyLength": len(message.body),
        "bodySha256": sha256(message.body).hexdigest(),
        "msgId": message.properties.get(PROPERTY_UNIQ_KEY) or offset_id,
        "offsetMsgId": offset_id,
        "crcOk": is_body_whole(message),
        "body": text,
        "bodyBase64": b64encode(body).decode("ascii") if text is None else None,
        "brokerName": broker_name or None,
    }


def is_body_whole(message: StoredMessage) -> bool:
    """Whether the body, as it is stored, has the CRC of its record."""
    return not message.body or body_crc(message.body) == message.body_crc
