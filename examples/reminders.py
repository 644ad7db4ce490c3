"""Sends reminders that are delivered later, and handles them one at a time, on asyncio.

    python examples/reminders.py [NAMESRV]

A reminder is acknowledged when it is handled; one that is not comes again after its invisible time.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import AsyncExitStack

from gantrymq import AsyncEmbeddedBroker, AsyncProducer, AsyncSimpleConsumer, Message

TOPIC, GROUP, REMINDERS = "reminders", "mailer", 5


async def main(namesrv: str | None = None) -> None:
    async with AsyncExitStack() as stack:
        if namesrv is None:
            namesrv = (await stack.enter_async_context(AsyncEmbeddedBroker())).namesrv
        consumer = await stack.enter_async_context(
            AsyncSimpleConsumer(namesrv, consumer_group=GROUP, consume_from_where="CONSUME_FROM_FIRST_OFFSET")
        )
        producer = await stack.enter_async_context(AsyncProducer(namesrv, producer_group="calendar"))
        for number in range(REMINDERS):
            await producer.send(Message(TOPIC, f"reminder {number}".encode(), delay_ms=1_000))
        await consumer.subscribe(TOPIC)
        handled = 0
        async with asyncio.timeout(60):
            async for message in consumer:
                print(message.body.decode())
                await consumer.ack(message)
                handled += 1
                if handled == REMINDERS:
                    break
    print(f"{handled} reminders handled")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:2]))
