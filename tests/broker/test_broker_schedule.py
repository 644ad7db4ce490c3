"""What a broker does again and again."""

import asyncio

from gantrymq.broker.schedule import Schedule


def test_schedule_stops_though_task_swallows_cancellation() -> None:
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


def test_task_with_shortened_interval_does_not_wait_for_old_one() -> None:
    async def scenario() -> None:
        interval_ms, ran = [3_600_000], asyncio.Event()
        schedule = Schedule()
        schedule.every("task", lambda: interval_ms[0], ran.set)
        await asyncio.sleep(0)  # the task sleeps now
        interval_ms[0] = 1
        try:
            await asyncio.wait_for(ran.wait(), 10)
        finally:
            await schedule.stop()

    asyncio.run(scenario())
