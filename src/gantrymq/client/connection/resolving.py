"""Resolves the addresses under which brokers are registered: brokerIP1 may be a host name."""

from __future__ import annotations

import socket

from gantrymq.errors import RemotingError
from gantrymq.model.host import Host
from gantrymq.remoting.transport.client import split_address


def hosts_of(address: str) -> frozenset[Host]:
    """The IP addresses, each with the port, of ``host:port``. Empty if the name cannot be resolved.

    A host name is looked up, which may block.
    """
    try:
        return frozenset((Host.parse(address),))
    except ValueError:
        pass  # a host name
    try:
        name, port = split_address(address)
        infos = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)
    except (RemotingError, OSError):
        return frozenset()
    return frozenset(
        Host(socket.inet_pton(family, str(address[0]).partition("%")[0]), port) for family, _, _, _, address in infos
    )
