"""Resource limits of brokers and name servers. The keys are not RocketMQ's."""

from gantrymq.config.frozen import settings
from gantrymq.config.keys import key


@settings(frozen=True)
class RemotingLimits:
    """Limits over all connections of a server and for one request. Read only at the start."""

    max_connections: int = key("maxConnections", 100_000, min_value=1, at_start=True)
    max_request_header_bytes: int = key("maxRequestHeaderBytes", 256 << 10, min_value=1 << 10, at_start=True)
    max_partial_request_bytes: int = key("maxPartialRequestBytes", 64 << 20, min_value=16 << 20, at_start=True)
    max_unread_response_bytes: int = key("maxUnreadResponseBytes", 48 << 20, min_value=16 << 20, at_start=True)
    # A quarter of it for heartbeats and locks, a sixteenth for settings. Messages and registrations have other limits.
    max_request_body_bytes: int = key(
        "maxRequestBodyBytes", 1 << 20, min_value=64 << 10, max_value=16 << 20, at_start=True
    )
