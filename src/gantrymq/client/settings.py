"""What every client is told: where the name servers are, who asks, how it speaks.

Source: ClientConfig, NettyClientConfig.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self, cast

from gantrymq.config.keys import check_values, key
from gantrymq.config.name_servers import ALLOWED, name_server_addresses
from gantrymq.errors import ConfigError
from gantrymq.model.size import MAX_DECOMPRESSED_BODY_SIZE
from gantrymq.remoting.acl import SessionCredentials
from gantrymq.remoting.codes import SerializeType


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """``name_servers`` as RocketMQ writes them: ``host:port;host:port``, also ``http://host:port``.

    With ``access_key`` and ``secret_key`` every request is signed. ``tls`` holds keys of tls.properties
    (``tls.enable``, ``tls.client.trustCertPath``, …). ``request_timeout_ms`` (mqClientApiTimeout) is for one answer.
    A body that has more than ``max_decompressed_body_size`` bytes when decompressed is delivered as it is stored.
    """

    name_servers: str
    namespace: str = key("namespace", "")
    access_key: str = key("accessKey", "")
    secret_key: str = field(default="", repr=False)
    security_token: str = field(default="", repr=False)
    tls: Mapping[str, str] = field(default_factory=dict, repr=False)
    connect_timeout_ms: int = key("connectTimeoutMillis", 3000)
    request_timeout_ms: int = key("mqClientApiTimeout", 3000)
    serialize_type: SerializeType = key("rocketmq.serialize.type", SerializeType.JSON)
    max_decompressed_body_size: int = key("maxDecompressedBodySize", MAX_DECOMPRESSED_BODY_SIZE, least=1)

    def __post_init__(self) -> None:
        check_values(self)
        if not isinstance(cast(object, self.name_servers), str) or not self.name_server_list:
            raise ConfigError("namesrvAddr", self.name_servers, ALLOWED)
        if bool(self.access_key) != bool(self.secret_key):
            raise ConfigError("accessKey", self.access_key, "accessKey and secretKey together, or neither")

    @classmethod
    def of(cls, given: Self | str, settings: Mapping[str, Any]) -> Self:
        """What a client was given: all settings or the name servers, and single settings over them.

        Raises ConfigError; so it does for the settings of a client of another kind.
        """
        return replace(given, **settings) if isinstance(given, cls) else cls(cast(str, given), **settings)

    @property
    def name_server_list(self) -> list[str]:
        """The addresses one by one."""
        return name_server_addresses("namesrvAddr", self.name_servers)

    @property
    def credentials(self) -> SessionCredentials | None:
        """Who signs, if anybody does."""
        if not self.access_key:
            return None
        return SessionCredentials(self.access_key, self.secret_key, self.security_token or None)
