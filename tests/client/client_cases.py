"""What the tests of clients at our own broker share."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from gantrymq import ConsumeFromWhere

FIRST = {"consume_from_where": ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET}


def eventually(ask: Callable[[], Any], what: str) -> None:
    """Return when ``ask`` says yes; fails after a minute with ``what`` did not come."""
    deadline = time.monotonic() + 60
    while not ask():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)
