"""Reading without a group, at our own broker; at the real one: tests/interop."""

import pytest

from gantrymq import PullClient
from gantrymq.client.settings import ClientConfig
from gantrymq.errors import RemotingError


@pytest.mark.parametrize("host", ["a..b", "x" * 64])
def test_a_host_that_can_be_no_name_is_said_so(host: str) -> None:
    with PullClient(ClientConfig(f"{host}:9876")) as client, pytest.raises(RemotingError, match=f"{host}:9876"):
        client.topics()
