"""A process that puts odd messages into a store until it is killed, and says on stdout what was acknowledged.

    python victim.py '{"path": "/data/store", "settings": {"flushDiskType": "SYNC_FLUSH"}, "seed": 7, "threads": 2}'

One JSON line for each acknowledged message, written out before the next put. ``batch`` is how many messages a put has
(1: put, more: put_batch), ``count`` how many each thread puts in all; then the store is closed.
"""

import json
import random
import sys
import threading
from hashlib import sha256
from pathlib import Path
from typing import Any

from gantrymq.config.properties import read_settings
from gantrymq.model.message import LOOPBACK, Message
from gantrymq.model.status import PutMessageStatus
from gantrymq.store.log.appendable import AppendableMessage
from gantrymq.store.message_store import MessageStore

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from store_cases import odd_message

OUT = threading.Lock()


def say(lines: list[dict[str, Any]]) -> None:
    with OUT:
        sys.stdout.write("".join(json.dumps(line) + "\n" for line in lines))
        sys.stdout.flush()


def acknowledgement(store: MessageStore, message: Message, phy_offset: int, queue_offset: int) -> dict[str, Any]:
    stored = AppendableMessage(message)
    assert stored.check(store.config, LOOPBACK) is PutMessageStatus.PUT_OK
    topic, queue_id = stored.record_queue
    return {
        "topic": topic,
        "queueId": queue_id,
        "queueOffset": queue_offset,
        "phyOffset": phy_offset,
        "sysFlag": message.sys_flag,
        "bodySha256": sha256(message.body).hexdigest(),
    }


def put_many(store: MessageStore, rng: random.Random, count: int, batch: int) -> None:
    for _ in range(0, count, batch):
        messages = [odd_message(rng) for _ in range(batch)]
        if batch == 1:
            one = store.put(messages[0])
            assert one.status is PutMessageStatus.PUT_OK, one
            places = [(one.phy_offset, one.queue_offset)]
        else:
            many = store.put_batch(messages)
            assert many.status is PutMessageStatus.PUT_OK, many
            places = list(zip(many.phy_offsets.tolist(), many.queue_offsets.tolist(), strict=True))
        say([acknowledgement(store, message, *place) for message, place in zip(messages, places, strict=True)])


def main(
    path: str, settings: dict[str, Any], seed: int, count: int = 1 << 40, batch: int = 1, threads: int = 1
) -> None:
    reading = read_settings({key: str(value) for key, value in settings.items()})
    with MessageStore.open(path, reading.config, given=reading.given, housekeeping=False) as store:
        writers = [
            threading.Thread(target=put_many, args=(store, random.Random(f"{seed} {number}"), count, batch))
            for number in range(threads)
        ]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
