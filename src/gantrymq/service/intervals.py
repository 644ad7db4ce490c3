"""The sleep of a periodic task on an event loop, whose interval may change meanwhile."""

import asyncio
from collections.abc import Callable

_LOOK_S = 1.0
_CLOCK_S = 0.0005  # uvloop's clock and timers have milliseconds: a shorter sleep is none, and is repeated


async def sleep_interval(interval_ms: Callable[[], int]) -> None:
    """Sleep for ``interval_ms()`` milliseconds. The interval is read again each second."""
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    while (left_s := began_s + interval_ms() / 1000 - loop.time()) > _CLOCK_S:
        await asyncio.sleep(min(left_s, _LOOK_S))
