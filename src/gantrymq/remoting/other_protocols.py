"""Recognises other protocols by their first bytes, for a helpful error when a client uses the wrong port."""

_REMOTING_ONLY = "this port speaks RocketMQ's remoting protocol alone"
_HTTP = f"HTTP was spoken; {_REMOTING_ONLY}"
_HTTP_METHODS = (b"GET ", b"POST ", b"PUT ", b"HEAD ", b"DELETE ", b"OPTIONS ", b"PATCH ", b"TRACE ", b"CONNECT ")
_REDIS = f"Redis was spoken; {_REMOTING_ONLY}"
_FIRST_BYTES = (
    (b"PRI * HT", f"HTTP/2 was spoken, as gRPC clients do; they need a RocketMQ proxy: {_REMOTING_ONLY}"),
    *((method, _HTTP) for method in _HTTP_METHODS),
    (b"HTTP/", "an HTTP server answered: this is no RocketMQ address"),
    *((word, _REDIS) for word in (b"*1\r\n$", b"*2\r\n$", b"*3\r\n$", b"PING\r\n", b"INFO\r\n", b"AUTH ")),
    (b"SSH-", f"SSH was spoken; {_REMOTING_ONLY}"),
    (b"AMQP", f"AMQP was spoken; {_REMOTING_ONLY}"),
    (b"STOMP", f"STOMP was spoken; {_REMOTING_ONLY}"),
    (b"PROXY ", "the PROXY protocol was spoken, which is not read here: turn it off at the load balancer"),
    (b"\r\n\r\n\0\r\nQ", "the PROXY protocol was spoken, which is not read here: turn it off at the load balancer"),
    (b"\x16\x03", "TLS was spoken where it is off"),
    (b"\x15\x03", "a TLS alert came: the other end ended a TLS handshake"),
)
_MQTT = b"\0\4MQTT"
_KAFKA_API_VERSIONS, _KAFKA_NEWEST_VERSION = b"\0\x12\0", 16


def other_protocol(begin: bytes) -> str | None:
    """A sentence that names the protocol of a stream with these first bytes; None for an unknown one."""
    for first_bytes, said in _FIRST_BYTES:
        if begin.startswith(first_bytes):
            return said
    if begin[:1] == b"\x10" and begin[2:8] == _MQTT:
        return f"MQTT was spoken; {_REMOTING_ONLY}"
    if begin[:2] == b"\0\0" and begin[4:7] == _KAFKA_API_VERSIONS and begin[7:8] < bytes([_KAFKA_NEWEST_VERSION]):
        return f"Kafka was spoken; {_REMOTING_ONLY}"
    return None
