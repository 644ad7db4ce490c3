"""What lite-pull consumers have fetched: against a plain model, with several threads, and interrupted at any time."""

from __future__ import annotations

import asyncio
import dis
import random
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

from client_cases import FIRST, eventually
from pulled import QUEUE, message

from gantrymq import EmbeddedBroker, LitePullConsumer, Message, Producer
from gantrymq.client.consumer import fetch
from gantrymq.client.consumer.fetch.fetched import FetchedMessages, FetchedPull, FetchedQueue

CONSUMER = str(Path(fetch.__file__).parents[1])


def put(fetched: FetchedMessages, queue: FetchedQueue, first: int, count: int) -> None:
    queue.put([message(offset, bytes(offset)) for offset in range(first, first + count)], first + count + 1)
    fetched.add(queue)


def test_polls_return_pulls_of_each_queue_in_order(rng: random.Random) -> None:
    """Pauses, returned pulls and released queues in any order, against lists of offsets."""
    fetched, queues = FetchedMessages(), [FetchedQueue(QUEUE, 0) for _ in range(3)]
    waiting: dict[FetchedQueue, list[list[int]]] = {queue: [] for queue in queues}
    ends = dict.fromkeys(queues, 0)
    taken_last: list[FetchedPull] = []
    for _ in range(2000):
        queue, act = rng.choice(queues), rng.random()
        if act < 0.4 and len(waiting[queue]) < 5:
            count = rng.randint(1, 4)
            put(fetched, queue, ends[queue], count)
            waiting[queue].append(list(range(ends[queue], ends[queue] + count)))
            ends[queue] += count + 1
        elif act < 0.5:
            queue.paused = not queue.paused
            fetched.add(queue)
        elif act < 0.6 and taken_last:
            fetched.give_back(taken_last)
            waiting[taken_last[0].queue].insert(0, [one.queue_offset for one in taken_last[0].messages])
            if not taken_last[0].queue.paused:
                again: list[FetchedPull] = []
                assert fetched.take(again, 0)
                assert again == taken_last
                waiting[again[0].queue].pop(0)
            taken_last = []
        else:
            taken_last = []
            took = fetched.take(taken_last, 0)
            assert took is bool(taken_last) is any(waiting[one] and not one.paused for one in queues)
            if took:
                (pull,) = taken_last
                assert not pull.queue.paused
                offsets = waiting[pull.queue].pop(0)
                assert [one.queue_offset for one in pull.messages] == offsets
                assert pull.queue.position == offsets[-1] + 2
        for one in queues:
            offsets = [offset for pull_offsets in waiting[one] for offset in pull_offsets]
            assert (one.count, one.size_bytes) == (len(offsets), sum(offsets))
            assert one.bounds == ((offsets[0], offsets[-1]) if offsets else None)


def test_released_queue_returns_nothing() -> None:
    fetched, queues = FetchedMessages(), [FetchedQueue(QUEUE, 0) for _ in range(2)]
    for queue in queues:
        put(fetched, queue, 0, 1)
        put(fetched, queue, 2, 1)
    queues[0].dropped = True
    taken: list[FetchedPull] = []
    while fetched.take(taken, 0):
        pass
    assert [pull.queue for pull in taken] == [queues[1], queues[1]]


def test_threads_share_pulls_without_loss_or_repetition() -> None:
    fetched, queues = FetchedMessages(), [FetchedQueue(QUEUE, 0) for _ in range(2)]
    taken: list[list[FetchedPull]] = [[] for _ in range(4)]
    done = threading.Event()

    def poll(mine: list[FetchedPull]) -> None:
        ended = False
        while not ended:
            ended = done.is_set()  # before the last look
            while fetched.take(mine, 0):
                pass

    threads = [threading.Thread(target=poll, args=(mine,)) for mine in taken]
    for thread in threads:
        thread.start()
    for offset in range(0, 2000, 2):
        for queue in queues:
            put(fetched, queue, offset, 1)
    done.set()
    for thread in threads:
        thread.join(60)
    offsets = sorted(pull.messages[0].queue_offset for mine in taken for pull in mine)
    assert offsets == sorted([*range(0, 2000, 2)] * 2)
    assert [(queue.count, queue.size_bytes, queue.position) for queue in queues] == [(0, 0, 2000)] * 2


def test_pull_given_back_wakes_waiting_poll() -> None:
    async def scenario() -> None:
        fetched, queue, taken = FetchedMessages(), FetchedQueue(QUEUE, 0), list[FetchedPull]()
        put(fetched, queue, 0, 1)
        assert fetched.take(taken, 0)
        await fetched.wait(60)
        waiting = asyncio.create_task(fetched.wait(60))
        await asyncio.sleep(0)
        await asyncio.to_thread(fetched.give_back, taken)
        await asyncio.wait_for(waiting, 30)

    asyncio.run(scenario())


class TimeLimitError(Exception):
    """What a signal's handler raises in the midst of a poll."""


class Interruption:
    """Raises in the consumer's code at the n-th instruction at which Python runs signal handlers.

    These are the instructions after a call, a backward jump and the beginning of a function.
    """

    def __init__(self, number: int) -> None:
        self._left, self.has_struck = number, False
        self._previous: dict[FrameType, str] = {}

    def __call__(self, frame: FrameType, event: str, argument: object) -> Any:
        if not frame.f_code.co_filename.startswith(CONSUMER):
            return None
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        if event == "opcode":
            before = self._previous.get(frame, "RESUME")
            self._previous[frame] = dis.opname[frame.f_code.co_code[frame.f_lasti]]
            if before.startswith(("CALL", "RESUME", "JUMP_BACKWARD")):
                self._left -= 1
                if self._left < 0 and not self.has_struck:
                    self.has_struck = True
                    raise TimeLimitError
        return self


def test_poll_interrupted_at_any_instruction_loses_no_message() -> None:
    with (
        EmbeddedBroker() as broker,
        Producer(broker.namesrv) as producer,
        LitePullConsumer(
            broker.namesrv, consumer_group="struck", pull_batch_size=1, auto_commit=False, **FIRST
        ) as consumer,
    ):
        broker.create_topic("Struck", 1)
        producer.send_batch([Message("Struck", b"%d" % number) for number in range(200)])
        consumer.subscribe("Struck")
        (state,) = consumer._consumer._assigned.table.values()
        bodies, strikes, has_struck = list[bytes](), 0, True
        while has_struck:
            eventually(lambda: state.count > 1, "pulled messages")
            interruption, before = Interruption(strikes), sys.gettrace()
            sys.settrace(interruption)
            try:
                bodies += [one.body for one in consumer.poll(60_000)]
            except TimeLimitError:
                strikes += 1
            finally:
                sys.settrace(before)
            has_struck = interruption.has_struck
            assert state.position in (None, len(bodies))
            bodies += [one.body for one in consumer.poll(60_000)]
    assert bodies == [b"%d" % number for number in range(len(bodies))]
    assert strikes > 10
