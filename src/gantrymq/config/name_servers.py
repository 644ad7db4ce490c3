"""The addresses of name servers as users write them; a broker, every client, the command line and Spark read them here.

Source: NameServerAddressUtils, NettyRemotingClient.updateNameServerAddressList; the Go client takes https:// as well.
"""

import re

from gantrymq.errors import ConfigError

ALLOWED = "host:port, several joined by semicolons"
_SCHEME = re.compile(r"https?://", re.IGNORECASE)  # of an endpoint; the protocol spoken there is the same
_ADDRESS = re.compile(r"[^\s,;/]+:([0-9]{1,5})")
_LAST_PORT = 65_535


def name_server_addresses(key: str, text: str) -> list[str]:
    """The addresses in ``host:port;host:port``, one by one, in their order; empty for a blank text.

    A comma separates as a semicolon does. ``http://host:port`` is the endpoint form of ``host:port``. An IPv6 host may
    stand in brackets. Raises ConfigError under ``key`` for any other text.
    """
    parts = (part.strip() for part in re.split("[;,]", text))
    addresses = [_SCHEME.sub("", part, count=1).removesuffix("/") for part in parts if part]
    for address in addresses:
        found = _ADDRESS.fullmatch(address)
        if found is None or int(found[1]) > _LAST_PORT:
            raise ConfigError(key, text, ALLOWED)
    return addresses
