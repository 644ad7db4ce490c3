"""Addresses of name servers as users write them, for the broker, the clients, the command line and Spark.

Source: NameServerAddressUtils, NettyRemotingClient.updateNameServerAddressList; the Go client accepts https:// too.
"""

import re

from gantrymq.errors import ConfigError

ALLOWED = "host:port, several joined by semicolons"
_SCHEME = re.compile(r"https?://", re.IGNORECASE)  # of an endpoint; the protocol is the same
_ADDRESS = re.compile(r"(?:[^\s,;/:\[\]]+|\[[0-9a-fA-F:.]+(?:%[^\s,;/\[\]]+)?\]):([0-9]{1,5})")
_BARE_IPV6 = re.compile(r"[0-9a-fA-F.]*:[0-9a-fA-F:.]*")
_LAST_PORT = 65_535


def name_server_addresses(key: str, text: str) -> list[str]:
    """The addresses in ``host:port;host:port``, in their order; empty for a blank text.

    A comma separates like a semicolon. ``http://host:port`` is the endpoint form of ``host:port``. An IPv6 host needs
    brackets, because ``::1:9876`` is itself an address without a port. Raises ConfigError under ``key`` for any other
    text.
    """
    parts = (part.strip() for part in re.split("[;,]", text))
    addresses = [_SCHEME.sub("", part, count=1).removesuffix("/") for part in parts if part]
    for address in addresses:
        if not is_address(address):
            raise ConfigError(key, text, ALLOWED + hint(address))
    return addresses


def is_address(text: str) -> bool:
    """Whether ``text`` is ``host:port`` or ``[ipv6]:port`` with a port from 1 to 65535."""
    match = _ADDRESS.fullmatch(text)
    return match is not None and 1 <= int(match[1]) <= _LAST_PORT


def hint(text: str) -> str:
    """A hint for an IPv6 address without brackets; empty for any other text."""
    host, _, port = text.rpartition(":")
    return f"; an IPv6 host stands in brackets, as [{host}]:{port}" if _BARE_IPV6.fullmatch(host) else ""
