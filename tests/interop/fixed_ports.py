"""Ports for servers that start later, or again, while other tests run."""

import random
import socket

# Below the ports that Linux gives to servers and connections that leave the choice to it.
_FIXED = range(20_002, 32_000)


def fixed_port() -> int:
    """A free port that no other test gets meanwhile.

    Those of a broker's VIP channel, two below, and of its HA server, one above, are free too.
    """
    while True:
        port = random.SystemRandom().choice(_FIXED)
        with socket.socket() as own, socket.socket() as vip, socket.socket() as ha:
            try:
                own.bind(("127.0.0.1", port))
                vip.bind(("127.0.0.1", port - 2))
                ha.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
            return port
