"""The thread of a service: it sleeps for an interval, however long, and goes on when it is woken."""

import threading

import pytest

from gantrymq.clock import SystemClock
from gantrymq.service.runner import ServiceRunner


class Counted:
    """A service that counts its steps."""

    name = "Counted"

    def __init__(self, interval_ms: int) -> None:
        self.interval_ms = interval_ms
        self.steps = threading.Semaphore(0)

    def step(self, now_ms: int) -> bool:
        self.steps.release()
        return False

    def drain(self) -> None:
        return


@pytest.mark.parametrize("interval_ms", [1_000_000, 1 << 63])
def test_service_sleeping_beyond_lock_timeout_limit_is_woken(interval_ms: int) -> None:
    service = Counted(interval_ms)
    runner = ServiceRunner(service, SystemClock(), lambda name, error: None)
    runner.start()
    for _ in range(3):
        assert service.steps.acquire(timeout=60)
        runner.wake()
    runner.stop()
