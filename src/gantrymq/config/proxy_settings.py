"""The settings of a proxy, under the keys of RocketMQ's ``rmq-proxy.json`` and with its defaults.

Source: ProxyConfig.
"""

from collections.abc import Mapping

from gantrymq.config.auth_settings import AuthConfig
from gantrymq.config.exporter_settings import ExporterConfig
from gantrymq.config.frozen import settings
from gantrymq.config.grpc_settings import WITHOUT_EFFECT, GrpcConfig
from gantrymq.config.keys import check_text, fields_by_key, key, read_fields
from gantrymq.config.known_keys import AUTH_KEYS
from gantrymq.config.name_servers import name_server_addresses
from gantrymq.config.refused_keys import ServerKind, warned_keys


@settings(frozen=True)
class ProxyConfig(GrpcConfig, ExporterConfig, AuthConfig):
    """The settings of one proxy. Immutable and validated; raises ConfigError.

    ``grpc_server_port`` 0 takes a free port. The default of ``bind_address`` is loopback; RocketMQ's is all addresses.
    """

    namesrv_addr: str = key("namesrvAddr", "", at_start=True)
    bind_address: str = key("bindAddress", "127.0.0.1", at_start=True)
    local_serve_addr: str = key("localServeAddr", "127.0.0.1", at_start=True)
    grpc_server_port: int = key("grpcServerPort", 8081, min_value=0, max_value=65535, at_start=True)
    max_message_size_bytes: int = key("maxMessageSize", 4 << 20, at_start=True)  # 0 or less: no limit
    # How long a route or a configuration is kept before it is read again, and how many of each are kept.
    route_cache_s: int = key("topicRouteServiceCacheRefreshSeconds", 20, min_value=1, at_start=True)
    max_routes: int = key("topicRouteServiceCacheMaxNum", 20_000, min_value=1, at_start=True)
    topic_cache_s: int = key("topicConfigCacheRefreshSeconds", 20, min_value=1, at_start=True)
    max_topics: int = key("topicConfigCacheMaxNum", 20_000, min_value=1, at_start=True)
    group_cache_s: int = key("subscriptionGroupConfigCacheRefreshSeconds", 20, min_value=1, at_start=True)
    max_groups: int = key("subscriptionGroupConfigCacheMaxNum", 20_000, min_value=1, at_start=True)
    producer_heartbeat_s: int = key("transactionHeartbeatPeriodSecond", 20, min_value=1, at_start=True)
    # How long a user and its policies of RocketMQ's brokers are kept, before they are read again and at most.
    user_cache_s: int = key("userCacheRefreshSeconds", 20, min_value=1, at_start=True)
    user_expired_s: int = key("userCacheExpiredSeconds", 300, min_value=1, at_start=True)
    max_users: int = key("userCacheMaxNum", 20_000, min_value=1, at_start=True)
    acl_cache_s: int = key("aclCacheRefreshSeconds", 20, min_value=1, at_start=True)
    acl_expired_s: int = key("aclCacheExpiredSeconds", 300, min_value=1, at_start=True)
    max_acls: int = key("aclCacheMaxNum", 20_000, min_value=1, at_start=True)
    # Labels of its metrics. An empty name is that of the machine.
    proxy_name: str = key("proxyName", "", at_start=True)
    proxy_cluster_name: str = key("proxyClusterName", "DefaultCluster", at_start=True)
    # Keys of a broker: the accounts of the proxy, which are those of the brokers.
    acl_enable: bool = key("aclEnable", False, at_start=True)
    acl_plain_file: str = key("aclPlainFile", "", at_start=True)
    # Not RocketMQ's: keys that a start takes although they cannot be honoured (see config/guards.py).
    accept_without_effect: str = key("acceptWithoutEffect", "", at_start=True)

    def __post_init__(self) -> None:
        """Validate every value and the name servers' addresses."""
        super().__post_init__()
        name_server_addresses("namesrvAddr", self.namesrv_addr)

    @property
    def name_servers(self) -> list[str]:
        """The name servers of namesrvAddr, one address each."""
        return name_server_addresses("namesrvAddr", self.namesrv_addr)


def read_proxy_config(entries: Mapping[str, str]) -> ProxyConfig:
    """The settings from text entries; others are ignored. Raises ConfigError for an invalid value."""
    for name, text in entries.items():
        check_text(name, text)
    return ProxyConfig(**read_fields(ProxyConfig, entries))


def is_known(name: str) -> bool:
    """Whether a key has an effect on a proxy, here or in RocketMQ."""
    return name in fields_by_key(ProxyConfig) or name in WITHOUT_EFFECT or name in AUTH_KEYS


def proxy_warnings(entries: Mapping[str, str]) -> list[str]:
    """A line for each entry that acts in RocketMQ's proxy, has no effect here, and is not RocketMQ's default."""
    return [reason.text for reason in warned_keys(entries, ServerKind.PROXY)]
