"""Limits of a stream that reads from a cluster."""

from __future__ import annotations

from collections import Counter

import pytest
from stream_cases import Stream, bodies

from gantrymq import EmbeddedBroker, Message, Producer

COUNT, BODY_BYTES = 120, 1000


@pytest.mark.parametrize(("limit", "most"), [("30k", 40), ("1", 4), ("1g", COUNT)])
def test_maxBytesPerTrigger_limits_batch_from_cluster(limit: str, most: int) -> None:
    """By the mean size of what waits; each queue that has something gives at least one message."""
    with EmbeddedBroker() as broker:
        with Producer(broker.namesrv, send_msg_timeout_ms=20_000) as producer:
            for number in range(COUNT):
                body = b"%06d" % number + bytes(BODY_BYTES - 6)
                producer.send(Message("Large", body), lambda queues, number=number: queues[number % 4])
        options = {"nameserver": broker.namesrv, "subscribe": "Large", "startingOffsets": "earliest"}
        with Stream("", "body", maxBytesPerTrigger=limit, **options) as stream:
            found = stream.batches()
    assert max(map(len, found)) <= most
    assert len(found) >= COUNT / most
    counted = Counter(body[:6] for rows in found for body in bodies(rows))
    assert counted == Counter(b"%06d" % number for number in range(COUNT))
