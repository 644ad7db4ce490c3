"""The simple consumer at a broker that answers as a test says; at the real one: tests/interop."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from fake_pop_broker import POP_TIME_MS, FakePopBroker, popped

from gantrymq import AsyncSimpleConsumer, ConfigError, GantrymqError, SimpleConsumer, SimpleConsumerConfig
from gantrymq.client.requests.received import ReceivedMessage
from gantrymq.errors import MQBrokerError, MQClientError
from gantrymq.model.flags import COMPRESSED
from gantrymq.remoting.codes import ResponseCode
from gantrymq.remoting.command import ONEWAY_FLAG, RemotingCommand
from gantrymq.remoting.headers.pop import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    NotificationRequestHeader,
    PopMessageRequestHeader,
)
from gantrymq.remoting.headers.send import ConsumerSendMsgBackRequestHeader

pytestmark = pytest.mark.asyncio
LONG_MS = 60_000  # a test that waits so long fails by its time limit


@asynccontextmanager
async def consuming(*topics: str, **settings: Any) -> AsyncIterator[tuple[FakePopBroker, AsyncSimpleConsumer]]:
    fake = FakePopBroker()
    fake.topics |= set(topics)
    async with (
        fake.running(),
        AsyncSimpleConsumer(fake.address, consumer_group="G", await_duration_ms=LONG_MS, **settings) as consumer,
    ):
        for topic in topics or ("T",):
            await consumer.subscribe(topic)
        yield fake, consumer


async def test_message_is_received_and_acknowledged_by_its_handle() -> None:
    async with consuming() as (fake, consumer):
        fake.arrive(popped(5, body=b"five"), popped(7, body=b"seven"))
        messages = await consumer.receive(8, invisible_ms=9000)
        assert [(one.body, one.topic, one.broker_name) for one in messages] == [
            (b"five", "T", "broker-a"),
            (b"seven", "T", "broker-a"),
        ]
        [asked] = fake.of(PopMessageRequestHeader)
        assert (asked.topic, asked.consumer_group, asked.queue_id, asked.max_msg_nums) == ("T", "G", -1, 8)
        assert (asked.invisible_time, asked.poll_time, asked.born_time, asked.init_mode) == (9000, 0, 0, 1)
        assert (asked.exp_type, asked.exp, asked.order, asked.attempt_id) == ("TAG", "*", False, None)
        handle = f"5 {POP_TIME_MS} 9000 3 0 broker-a 0 7"
        assert messages[1].receipt_handle == handle
        await consumer.ack(messages[1])
        [ack] = fake.of(AckMessageRequestHeader)
        assert (ack.topic, ack.queue_id, ack.offset, ack.extra_info) == ("T", 0, 7, handle)


async def test_message_of_retry_topic_has_its_own_handle() -> None:
    """The broker writes it into the message, which it shows under the topic itself; or shows the retry topic."""
    handle = f"3 {POP_TIME_MS} 60000 3 2 broker-a 0 4"
    async with consuming() as (fake, consumer):
        fake.start_offsets = "0 0 4;1 0 0;2 0 3"
        fake.arrive(popped(4, reconsume_times=1, POP_CK=handle, TAGS="a"), popped(6, topic="%RETRY%G_T"))
        first, second = await consumer.receive()
        assert (first.receipt_handle, first.topic, first.reconsume_times) == (handle, "T", 1)
        assert first.properties == {"TAGS": "a"}
        assert (second.receipt_handle, second.topic) == (f"0 {POP_TIME_MS} 60000 3 1 broker-a 0 6", "T")
        await consumer.ack(first)
        await consumer.ack(second)
        assert [ack.topic for ack in fake.of(AckMessageRequestHeader)] == ["%RETRY%G+T", "%RETRY%G_T"]


FORGED = ["garbage", "0 1 2 3 0 broker-x 0 9", f"5 {POP_TIME_MS} 60000 3 1 broker-a 0 5", "x" * 3000]


@pytest.mark.parametrize("forged", FORGED)
@pytest.mark.parametrize("mark", ["0", "1"])
async def test_receipt_handle_written_by_producer_is_ignored(forged: str, mark: str) -> None:
    """A batch may have messages with POP_CK. The message is in the queue that the answer's offsets name."""
    async with consuming() as (fake, consumer):
        found, info = [popped(5, POP_CK=forged), popped(7)], {"start_offset_info": "0 0 4;1 0 3"}
        offsets = "0 0 5,7;1 0 9" if mark == "0" else "0 0 7;1 0 5"
        fake.answer_pop = lambda request: fake.found(request, found, msg_offset_info=offsets, **info)
        forged_one, other = await consumer.receive()
        start = {"0": 4, "1": 3}[mark]
        assert forged_one.receipt_handle == f"{start} {POP_TIME_MS} 60000 3 {mark} broker-a 0 5"
        assert other.receipt_handle == f"4 {POP_TIME_MS} 60000 3 0 broker-a 0 7"
        assert forged_one.properties == {}


async def test_another_invisible_time_gives_another_handle() -> None:
    async with consuming() as (fake, consumer):
        fake.arrive(popped(5), popped(6))
        message = (await consumer.receive())[1]
        await consumer.change_invisible_duration(message, 4000)
        [asked] = fake.of(ChangeInvisibleTimeRequestHeader)
        assert (asked.offset, asked.invisible_time, asked.queue_id) == (6, 4000, 0)
        assert message.receipt_handle == f"6 {POP_TIME_MS + 500} 4000 4 0 broker-a 0 6"


@pytest.mark.parametrize("is_decompressed", [True, False])
async def test_compressed_body_is_received_decompressed(is_decompressed: bool) -> None:
    packed = zlib.compress(b"body")
    async with consuming(decode_decompress_body=is_decompressed) as (fake, consumer):
        fake.arrive(popped(1, body=packed, sys_flag=COMPRESSED))
        [message] = await consumer.receive()
        expected = (b"body", 0) if is_decompressed else (packed, COMPRESSED)
        assert (message.body, message.sys_flag & COMPRESSED) == expected


async def test_waiting_is_one_notification_for_all_receives() -> None:
    async with consuming() as (fake, consumer):
        assert await consumer.receive(timeout_ms=0) == []
        assert await consumer.receive(timeout_ms=1) == []
        waiting = [asyncio.ensure_future(consumer.receive()) for _ in range(3)]
        [note] = await fake.asked_for(NotificationRequestHeader, 1)
        assert (note.topic, note.consumer_group, note.queue_id, note.born_time) == ("T", "G", -1, 0)
        assert note.poll_time > 0
        pops = len(fake.of(PopMessageRequestHeader))
        assert await consumer.receive(timeout_ms=1) == []
        assert len(fake.of(PopMessageRequestHeader)) == pops  # the broker holds a notification: it has nothing
        fake.arrive(*(popped(number) for number in range(3)))
        done, rest = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        assert len(done.pop().result()) == 3
        for one in rest:
            one.cancel()


async def test_new_filter_applies_to_running_wait() -> None:
    async with consuming() as (fake, consumer):
        waiting = asyncio.ensure_future(consumer.receive())
        await fake.asked_for(NotificationRequestHeader, 1)
        await consumer.subscribe("T", "A || B")
        notes = await fake.asked_for(NotificationRequestHeader, 2)
        assert [note.exp for note in notes] == ["*", "A || B"]
        waiting.cancel()


async def test_message_of_any_topic_ends_wait_and_topics_alternate() -> None:
    async with consuming("A", "B") as (fake, consumer):
        for topic in ("B", "A", "A", "B"):
            waiting = asyncio.ensure_future(consumer.receive())
            await asyncio.sleep(0)
            fake.arrive(popped(0, topic=topic), topic=topic)
            assert [message.topic for message in await waiting] == [topic]
        for topic in ("A", "B"):
            fake.arrive(*(popped(number, topic=topic) for number in range(4)), topic=topic)
        turns = [(await consumer.receive(1))[0].topic for _ in range(8)]
        assert sorted(turns) == ["A"] * 4 + ["B"] * 4
        assert turns[:2] in (["A", "B"], ["B", "A"])


async def test_notification_without_message_causes_no_busy_loop() -> None:
    async with consuming() as (fake, consumer):
        fake.has_always = True  # as for messages that the filter does not match
        assert await consumer.receive(timeout_ms=300) == []
        assert len(fake.of(PopMessageRequestHeader)) < 12


async def test_message_of_another_tag_with_the_same_hash_is_acknowledged() -> None:
    async with consuming("A") as (fake, consumer):
        await consumer.subscribe("T", "AaAa")
        fake.arrive(popped(1, TAGS="BBBB"), popped(2, TAGS="AaAa"))
        assert [message.tags for message in await consumer.receive()] == ["AaAa"]
        [ack] = await fake.asked_for(AckMessageRequestHeader, 1)
        assert ack.offset == 1


async def test_message_above_max_reconsume_times_becomes_dead_letter() -> None:
    async with consuming(max_reconsume_times=2) as (fake, consumer):
        fake.arrive(popped(1, reconsume_times=3), popped(2, reconsume_times=2))
        assert [message.queue_offset for message in await consumer.receive()] == [2]
        [ack] = await fake.asked_for(AckMessageRequestHeader, 1)
        [back] = fake.of(ConsumerSendMsgBackRequestHeader)
        assert (back.offset, back.group, back.delay_level, back.origin_topic) == (1001, "G", -1, "T")
        assert ack.offset == 1
    async with consuming(max_reconsume_times=-1) as (fake, consumer):
        fake.arrive(popped(1, reconsume_times=300))
        assert len(await consumer.receive()) == 1


async def test_orderly_receive_repeats_attempt_after_lost_answer() -> None:
    async with consuming(consume_orderly=True, consume_from_where="CONSUME_FROM_FIRST_OFFSET") as (fake, consumer):

        def lost(request: RemotingCommand) -> RemotingCommand:
            fake.answer_pop = None
            return request.response(ResponseCode.SYSTEM_BUSY, "as if it were lost")

        fake.answer_pop = lost
        with pytest.raises(MQBrokerError):
            await consumer.receive()
        fake.answer_pop = lambda request: fake.found(
            request, [popped(5), popped(6)], order_count_info="0 qo0%6 4;0 0 2"
        )
        messages = await consumer.receive()
        assert [message.reconsume_times for message in messages] == [2, 4]
        await consumer.receive()
        attempts = [asked.attempt_id for asked in fake.of(PopMessageRequestHeader)]
        assert attempts[0] == attempts[1] != attempts[2]
        assert {(asked.order, asked.init_mode) for asked in fake.of(PopMessageRequestHeader)} == {(True, 0)}


async def test_failing_topic_does_not_stop_others() -> None:
    async with consuming("A", "B") as (fake, consumer):

        def refuse(request: RemotingCommand) -> RemotingCommand | None:
            is_a = request.read(PopMessageRequestHeader).topic == "A"
            return request.response(ResponseCode.NO_PERMISSION, "no") if is_a else None

        fake.answer_pop = refuse
        for _ in range(2):
            fake.arrive(popped(1, topic="B"), topic="B")
            assert [message.topic for message in await consumer.receive()] == ["B"]
        await consumer.unsubscribe("B")
        with pytest.raises(MQBrokerError, match="NO_PERMISSION"):
            await consumer.receive()


@pytest.mark.parametrize(
    "info",
    [{"start_offset_info": None}, {"start_offset_info": "0 0"}, {"start_offset_info": "0 1 5"}],
)
async def test_contradictory_pop_answer_raises(info: dict[str, Any]) -> None:
    async with consuming() as (fake, consumer):
        fake.answer_pop = lambda request: fake.found(request, [popped(5)], **info)
        with pytest.raises(GantrymqError, match=r"startOffsetInfo|offset info"):
            await consumer.receive()


async def test_receive_waits_for_topic_without_route() -> None:
    async with consuming(poll_name_server_interval_ms=20) as (fake, consumer):
        await consumer.unsubscribe("T")
        await consumer.subscribe("Later")
        assert await consumer.receive(timeout_ms=1) == []
        fake.topics.add("Later")
        fake.arrive(popped(1, topic="Later"), topic="Later")
        assert len(await consumer.receive()) == 1


async def test_iteration_ends_with_its_consumer() -> None:
    async with consuming() as (fake, consumer):
        fake.arrive(*(popped(number) for number in range(5)))
        got = []
        async for message in consumer:
            got.append(message.queue_offset)
            if len(got) == 3:
                await consumer.close()
        assert got == [0, 1, 2]
        for call in (consumer.receive(), consumer.ack(message), consumer.change_invisible_duration(message, 1000)):
            with pytest.raises(MQClientError, match="closed"):
                await call
    async with consuming() as (fake, consumer):
        waiting = asyncio.ensure_future(anext(aiter(consumer)))
        await fake.asked_for(NotificationRequestHeader, 1)
        await consumer.close()
        with pytest.raises(StopAsyncIteration):
            await waiting


async def test_batch_whose_invisible_time_ended_is_dropped() -> None:
    async with consuming() as (fake, consumer):
        fake.arrive(popped(1), popped(2))
        messages = consumer.messages(invisible_ms=50)
        assert (await anext(messages)).queue_offset == 1
        await asyncio.sleep(0.06)
        fake.arrive(popped(3))
        assert (await anext(messages)).queue_offset == 3  # 2 is visible again


async def test_messages_given_back_are_received_next() -> None:
    async with consuming() as (fake, consumer):
        fake.arrive(popped(1), popped(2))
        messages = await consumer.receive()
        consumer.give_back(messages)
        assert await consumer.receive(1) == messages[:1]
        assert await consumer.receive(1) == messages[1:]
        fake.arrive(popped(3))
        consumer.give_back(await consumer.receive(invisible_ms=1))
        await asyncio.sleep(0.01)
        assert await consumer.receive(timeout_ms=0) == []  # it is visible to all again


async def test_receive_cancelled_during_pop_loses_no_message() -> None:
    async with consuming() as (fake, consumer):
        fake.arrive(popped(1), popped(2))
        receiving = asyncio.ensure_future(consumer.receive())

        def cancel(request: RemotingCommand) -> None:  # and then the broker answers with the messages
            receiving.cancel()

        fake.answer_pop = cancel
        with pytest.raises(asyncio.CancelledError):
            await receiving
        fake.answer_pop = None
        assert [message.queue_offset for message in await consumer.receive()] == [1, 2]


async def test_close_during_pop_ends_receive_with_error() -> None:
    """Not with a CancelledError, because the caller was not cancelled."""
    async with consuming() as (fake, consumer):
        closing: list[asyncio.Task[None]] = []

        def close(request: RemotingCommand) -> RemotingCommand:
            closing.append(asyncio.ensure_future(consumer.close()))
            request.flag |= ONEWAY_FLAG  # the broker never answers
            return request.response(ResponseCode.SUCCESS)

        fake.answer_pop = close
        with pytest.raises(GantrymqError, match="closed"):
            await consumer.receive()
        await closing[0]


@pytest.mark.parametrize("is_closed_by_hand", [True, False])
async def test_early_end_of_iteration_loses_no_message(is_closed_by_hand: bool) -> None:
    async with consuming() as (fake, consumer):
        fake.arrive(popped(1), popped(2), popped(3))
        if is_closed_by_hand:
            messages = consumer.messages()
            assert (await anext(messages)).queue_offset == 1
            await messages.aclose()  # type: ignore[attr-defined]
        else:
            async for message in consumer:
                assert message.queue_offset == 1
                break
        assert [message.queue_offset for message in await consumer.receive()] == [2, 3]


async def test_wrong_use_of_simple_consumer_raises_clear_error() -> None:
    async with consuming() as (_, consumer):
        message = ReceivedMessage(**{name: getattr(popped(1), name) for name in popped(1).__dataclass_fields__})
        for handle in ("", 5, None, b"x"):
            message.receipt_handle = handle  # type: ignore[assignment]
            with pytest.raises(MQClientError, match="no receipt handle"):
                await consumer.ack(message)
        for other in (None, 5, "x", popped(1)):
            with pytest.raises(MQClientError, match=r"message=.* is not allowed"):
                await consumer.change_invisible_duration(other, 1000)  # type: ignore[arg-type]
        for wrong in ({"max_messages": 33}, {"max_messages": 0}, {"invisible_ms": 0}, {"invisible_ms": 43_200_001}):
            with pytest.raises(MQClientError, match=f"{next(iter(wrong))}=.* is not allowed"):
                await consumer.receive(**wrong)
    with pytest.raises(MQClientError, match="start it first"):
        await AsyncSimpleConsumer("127.0.0.1:1", consumer_group="G").receive()
    with pytest.raises(ConfigError, match="consumeFromWhere"):
        SimpleConsumerConfig("a:1", consumer_group="G", consume_from_where="CONSUME_FROM_TIMESTAMP")  # type: ignore[arg-type]


async def test_blocking_simple_consumer_receives_and_iterates() -> None:
    fake = FakePopBroker()

    def consume(address: str) -> list[int]:
        with SimpleConsumer(address, consumer_group="G") as consumer:
            consumer.subscribe("T")
            [first] = consumer.receive(1)
            consumer.change_invisible_duration(first, 1000)
            consumer.ack(first)
            got = [first.queue_offset]
            for message in consumer:
                got.append(message.queue_offset)
                break
            for message in consumer:
                got.append(message.queue_offset)
                if len(got) == 3:
                    consumer.close()
            assert consumer.is_closed()
            return got

    async with fake.running():
        fake.arrive(popped(1), popped(2), popped(3), popped(4))
        assert await asyncio.to_thread(consume, fake.address) == [1, 2, 3]
