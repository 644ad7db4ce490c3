"""A process in which producers wait for the disk: for ``strace`` to count what they cost.

python waiting_producers.py STORE COUNT     one producer's sync is held up until all the others wait
python waiting_producers.py STORE COUNT N   each puts N messages, one after the other; nothing is held up
"""

import os
import sys
import threading
import time

from gantrymq import Message, MessageStore, MessageStoreConfig
from gantrymq.config.settings import FlushDiskType

SYNC = MessageStoreConfig(
    mapped_file_size_commit_log=1 << 20, flush_disk_type=FlushDiskType.SYNC_FLUSH, sync_flush_timeout_ms=600_000
)


def at_work(path: str, count: int, each: int) -> None:
    statuses: list[str] = []

    def produce(number: int) -> None:
        for _ in range(each):
            statuses.append(store.put(Message("orders", b"%d" % number)).status.name)

    with MessageStore.open(path, SYNC, given={"mappedFileSizeCommitLog"}, housekeeping=False) as store:
        producers = [threading.Thread(target=produce, args=(number,)) for number in range(count)]
        for producer in producers:
            producer.start()
        for producer in producers:
            producer.join()
    print(statuses.count("PUT_OK"))


def held_up_once(path: str, count: int) -> None:
    statuses: list[str] = []
    sync, arrived, everybody_waits = os.fdatasync, threading.Event(), threading.Event()

    def held_up(descriptor: int) -> None:
        if "/commitlog/" in os.readlink(f"/proc/self/fd/{descriptor}"):
            arrived.set()
            everybody_waits.wait()
        sync(descriptor)

    def produce(number: int) -> None:
        statuses.append(store.put(Message("orders", b"%d" % number)).status.name)

    with MessageStore.open(path, SYNC, given={"mappedFileSizeCommitLog"}, housekeeping=False) as store:
        os.fdatasync = held_up
        producers = [threading.Thread(target=produce, args=(number,)) for number in range(count)]
        producers[0].start()
        arrived.wait()
        for producer in producers[1:]:
            producer.start()
        while len(store._group_commit._requests) < count - 1:
            time.sleep(0.01)
        everybody_waits.set()
        for producer in producers:
            producer.join()
        os.fdatasync = sync
    print(statuses.count("PUT_OK"))


if __name__ == "__main__":
    (held_up_once if len(sys.argv) == 3 else at_work)(sys.argv[1], *map(int, sys.argv[2:]))
