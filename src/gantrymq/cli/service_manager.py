"""Tells systemd when a server serves and when it stops (``Type=notify``).

Source: sd_notify(3).
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress

_VARIABLE = "NOTIFY_SOCKET"
READY = "READY=1"
STOPPING = "STOPPING=1"


def notify(state: str) -> None:
    """Send ``state``, such as READY, to the service manager. Does nothing without one (NOTIFY_SOCKET)."""
    address = os.environ.get(_VARIABLE, "")
    if not address.startswith(("/", "@")):
        return
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as connection:
        connection.setblocking(False)
        connection.sendto(state.encode(), "\0" + address[1:] if address.startswith("@") else address)
