"""A host address as in a record: 4 or 16 bytes of IP and a port, and its text in Java's form."""

from __future__ import annotations

import ipaddress
import struct
from functools import lru_cache
from typing import NamedTuple

_MAX_PORT = 65_535


class Host(NamedTuple):
    """``ip`` has 4 or 16 bytes; ``port`` is unsigned (4 bytes in a record)."""

    ip: bytes
    port: int

    @property
    def is_v6(self) -> bool:
        """Whether the address has 16 bytes."""
        return len(self.ip) == 16

    def __str__(self) -> str:
        """``ip:port`` as Java prints it: an IPv6 address has all eight groups."""
        if self.is_v6:
            groups = struct.unpack(">8H", self.ip)
            return ":".join(f"{group:x}" for group in groups) + f":{self.port}"
        a, b, c, d = self.ip
        return f"{a}.{b}.{c}.{d}:{self.port}"

    def to_bytes(self) -> bytes:
        """The 8 or 20 bytes of a record."""
        return self.ip + struct.pack(">i", self.port)

    @classmethod
    def from_bytes(cls, raw: bytes) -> Host:
        """The inverse of :meth:`to_bytes`; ``raw`` has 8 or 20 bytes."""
        return cls(bytes(raw[:-4]), struct.unpack(">i", raw[-4:])[0])

    @classmethod
    def parse(cls, text: str) -> Host:
        """Parse ``ip:port`` or ``[ipv6]:port``. Raises ValueError."""
        return _parse(text)


@lru_cache(maxsize=256)
def _parse(text: str) -> Host:
    ip, _, port = text.rpartition(":")
    if not ip or not port.isdigit():
        raise ValueError(f"{text!r} is not ip:port")
    if int(port) > _MAX_PORT:
        raise ValueError(f"{text!r} has a port above {_MAX_PORT}")
    return Host(ipaddress.ip_address(ip.strip("[]")).packed, int(port))


def ip_of(address: str) -> str:
    """The IP address, or the name, of ``host:port`` or ``[ipv6]:port``."""
    return address.rpartition(":")[0].strip("[]")


def is_loopback(address: str) -> bool:
    """Whether a server that listens on ``address`` can be reached from this machine only."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"
