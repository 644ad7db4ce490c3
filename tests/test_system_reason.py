"""The text of an error of the operating system, as people read it."""

import errno
import socket
import ssl

import pytest

from gantrymq.errors import system_reason


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (OSError(errno.ECONNREFUSED, "Connect call failed ('127.0.0.1', 9)"), "Connection refused"),
        (OSError(errno.EADDRINUSE, "error while attempting to bind on address"), "Address already in use"),
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "Name or service not known"),
        (ssl.SSLError(1, "certificate verify failed"), "certificate verify failed"),
        (OSError("Multiple exceptions: a, b"), "Multiple exceptions: a, b"),
        (UnicodeError("label too long"), "label too long"),
    ],
)
def test_system_reason_omits_asyncio_address_and_wrong_errno(error: OSError, text: str) -> None:
    assert system_reason(error) == text
