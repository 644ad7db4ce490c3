"""One broker with gRPC for all tests of a file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gantrymq.embedded.broker import EmbeddedBroker


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    settings = {
        "enablePropertyFilter": True,
        "recallMessageEnable": True,
        "transactionCheckInterval": 1_000,
        "reviveInterval": 50,
    }
    with EmbeddedBroker(settings=settings, grpc=True) as running:
        yield running
