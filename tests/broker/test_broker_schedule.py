"""What a broker does again and again."""

import asyncio

from gantrymq.broker.schedule import Schedule


def test_it_stops_even_where_a_cancellation_is_swallowed() -> None:
    async def scenario() -> None:
        begun, times = asyncio.Event(), []

        async def swallow() -> None:
            times.append(1)
            begun.set()
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                return

        schedule = Schedule()
        schedule.every("swallow", lambda: 1, swallow)
        schedule.every("other", lambda: 60_000, lambda: None)
        await begun.wait()
        await asyncio.wait_for(schedule.stop(), 60)
        await asyncio.sleep(0.01)
        assert times == [1]

    asyncio.run(scenario())
