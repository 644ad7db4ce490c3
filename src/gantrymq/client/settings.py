"""The settings of every client: name servers, credentials, protocol, with RocketMQ's defaults.

Each settings class validates values. Beside it is a TypedDict with the same fields, by which type checkers reject
``producer_grop="x"``. A test compares the two.

Source: ClientConfig, NettyClientConfig.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from typing import Any, Self, TypedDict, cast

from gantrymq.config.keys import check_values, key
from gantrymq.config.name_servers import ALLOWED, name_server_addresses
from gantrymq.errors import ConfigError
from gantrymq.model.size import MAX_DECOMPRESSED_BODY_SIZE
from gantrymq.model.system_names import TRACE_TOPIC
from gantrymq.remoting.acl import SessionCredentials
from gantrymq.remoting.codes import SerializeType

_NAMESPACE = re.compile(r"[a-zA-Z0-9_-]+")
GROUP_NAME, GROUP_NAME_ALLOWED = re.compile(r"[%|a-zA-Z0-9_-]{1,120}"), "1 to 120 of ^[%|a-zA-Z0-9_-]+$"
_TOPIC = re.compile(r"[%|a-zA-Z0-9_-]{1,127}")


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """``name_servers`` has RocketMQ's syntax: ``host:port;host:port``, also ``http://host:port``.

    With ``access_key`` and ``secret_key`` every request is signed. ``tls`` has keys of tls.properties (``tls.enable``,
    ``tls.client.trustCertPath``, …). ``request_timeout_ms`` (mqClientApiTimeout) applies to one answer. A body that has
    more than ``max_decompressed_body_size`` bytes when decompressed is delivered as it is stored.
    """

    name_servers: str
    namespace: str = key("namespace", "")
    access_key: str = key("accessKey", "")
    secret_key: str = field(default="", repr=False)
    security_token: str = field(default="", repr=False)
    tls: Mapping[str, str] = field(default_factory=dict, repr=False)
    connect_timeout_ms: int = key("connectTimeoutMillis", 3000, min_value=1)
    request_timeout_ms: int = key("mqClientApiTimeout", 3000, min_value=1)
    serialize_type: SerializeType = key("rocketmq.serialize.type", SerializeType.JSON)
    max_decompressed_body_size: int = key("maxDecompressedBodySize", MAX_DECOMPRESSED_BODY_SIZE, min_value=1)

    def __post_init__(self) -> None:
        check_values(self)
        if not isinstance(cast(object, self.name_servers), str) or not self.name_server_list:
            raise ConfigError("namesrvAddr", self.name_servers, ALLOWED)
        for name in ("secret_key", "security_token"):
            if not isinstance(getattr(self, name), str | None):
                raise ConfigError(name, "…", "a text")
        if not isinstance(cast(object, self.tls), Mapping) or not all(
            isinstance(text, str) for pair in self.tls.items() for text in pair
        ):
            raise ConfigError("tls", "…", 'texts by keys of tls.properties, as {"tls.enable": "true"}')
        if self.namespace and not _NAMESPACE.fullmatch(self.namespace):
            raise ConfigError("namespace", self.namespace, "only letters, digits, - and _")
        if bool(self.access_key) != bool(self.secret_key):
            raise ConfigError("accessKey", self.access_key, "accessKey and secretKey together, or neither")

    @classmethod
    def of(cls, given: Self | str, settings: Mapping[str, object]) -> Self:
        """The settings from a client's arguments: a config object or the name servers, changed by single ``settings``.

        Raises ConfigError for an invalid value or a config of another kind of client, and TypeError for an unknown
        setting, as Python does for keywords.
        """
        known = [field.name for field in fields(cls)]
        for name in settings:
            if name not in known:
                close = get_close_matches(name, known, 1)
                hint = f"; did you mean {close[0]!r}?" if close else ""
                raise TypeError(f"{cls.__name__} has no setting {name!r}{hint}")
        values = cast(dict[str, Any], dict(settings))
        return replace(given, **values) if isinstance(given, cls) else cls(cast(str, given), **values)

    @property
    def name_server_list(self) -> list[str]:
        """The addresses of the name servers."""
        return name_server_addresses("namesrvAddr", self.name_servers)

    @property
    def credentials(self) -> SessionCredentials | None:
        """The credentials that sign each request, or None."""
        if not self.access_key:
            return None
        return SessionCredentials(self.access_key, self.secret_key, self.security_token or None)


class ClientSettings(TypedDict, total=False):
    """The fields of :class:`gantrymq.client.settings.ClientConfig`."""

    namespace: str
    access_key: str
    secret_key: str
    security_token: str
    tls: Mapping[str, str]
    connect_timeout_ms: int
    request_timeout_ms: int
    serialize_type: SerializeType | str
    max_decompressed_body_size: int


def trace_topic(trace: object) -> str:
    """The topic of the traces for a setting ``trace``; empty for False. Raises ConfigError."""
    if isinstance(trace, bool):
        return TRACE_TOPIC if trace else ""
    if isinstance(trace, str) and _TOPIC.fullmatch(trace):
        return trace
    raise ConfigError("traceTopic", trace, f"True for {TRACE_TOPIC}, the name of a topic, or False")
