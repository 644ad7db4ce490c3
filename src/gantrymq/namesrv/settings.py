"""The settings of a name server, under the keys of ``namesrv.conf`` and with RocketMQ's defaults.

Source: NamesrvConfig, NettyServerConfig of 5.5.0.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from gantrymq.config import broker_settings, guards
from gantrymq.config.auth_settings import CREDENTIALS, UserSettings, read_credentials
from gantrymq.config.frozen import settings
from gantrymq.config.guards import Reason
from gantrymq.config.keys import MASK, check_values, fields_by_key, key, read_fields, write_fields
from gantrymq.config.refused_keys import ServerKind, refused_keys
from gantrymq.config.remoting_limits import RemotingLimits
from gantrymq.errors import ConfigError
from gantrymq.model.java import LONG_MAX

NAMESRV_PROPERTIES = "namesrv.properties"

# RocketMQ's keys without effect here, with its defaults: tools may read and set them.
WITHOUT_EFFECT = {
    "productEnvName": "center",
    "clusterTest": "false",
    "clientRequestThreadPoolNums": "8",
    "defaultThreadPoolNums": "16",
    "clientRequestThreadPoolQueueCapacity": "50000",
    "defaultThreadPoolQueueCapacity": "10000",
    "enableControllerInNamesrv": "false",
    "serverWorkerThreads": "8",
    "serverCallbackExecutorThreads": "0",
    "serverSelectorThreads": "3",
    "serverOnewaySemaphoreValue": "256",
    "serverAsyncSemaphoreValue": "64",
    "serverSocketBacklog": "1024",
    "serverSocketSndBufSize": "0",
    "serverSocketRcvBufSize": "0",
    "writeBufferHighWaterMark": "0",
    "writeBufferLowWaterMark": "0",
    "serverNettyWorkerGroupEnable": "true",
    "serverPooledByteBufAllocatorEnable": "true",
    "enableShutdownGracefully": "false",
    "shutdownWaitTimeSeconds": "30",
    "useEpollNativeSelector": "false",
}
# Keys that RocketMQ does not have.
OWN_KEYS = (
    fields_by_key(RemotingLimits).keys()
    | fields_by_key(UserSettings).keys()
    | {
        "acceptWithoutEffect",
        "maxBrokers",
        "maxKvConfigBytes",
        "maxTopics",
        "maxTopicsOfBrokers",
        "usersDirectory",
    }
)


@settings(frozen=True)
class NamesrvConfig(RemotingLimits, UserSettings):
    """The settings of one name server. Immutable and validated; raises ConfigError.

    An empty ``kv_config_path`` or ``config_store_path`` is a file under ``~/namesrv``.
    """

    # 0.0.0.0 in RocketMQ. Here other hosts are served only if that is configured.
    bind_address: str = key("bindAddress", "127.0.0.1", at_start=True)
    listen_port: int = key("listenPort", 9876, min_value=0, max_value=65535, at_start=True)
    server_channel_max_idle_time_seconds: int = key("serverChannelMaxIdleTimeSeconds", 120, min_value=1, at_start=True)
    kv_config_path: str = key("kvConfigPath", "", at_start=True)
    config_store_path: str = key("configStorePath", "", at_start=True)
    order_message_enable: bool = key("orderMessageEnable", False)
    return_order_topic_config_to_broker: bool = key("returnOrderTopicConfigToBroker", True)
    scan_not_active_broker_interval_ms: int = key("scanNotActiveBrokerInterval", 5_000, min_value=1, max_value=LONG_MAX)
    un_register_broker_queue_capacity: int = key("unRegisterBrokerQueueCapacity", 3_000, min_value=1)
    support_acting_master: bool = key("supportActingMaster", False)
    enable_all_topic_list: bool = key("enableAllTopicList", True)
    enable_topic_list: bool = key("enableTopicList", True)
    notify_min_broker_id_changed: bool = key("notifyMinBrokerIdChanged", False)
    need_wait_for_service: bool = key("needWaitForService", False)
    wait_seconds_for_service: int = key("waitSecondsForService", 45, min_value=0)
    delete_topic_with_broker_registration: bool = key("deleteTopicWithBrokerRegistration", False)
    # Less than a broker's limits, because requests and answers of a name server are small.
    max_partial_request_bytes: int = key("maxPartialRequestBytes", 32 << 20, min_value=16 << 20, at_start=True)
    max_unread_response_bytes: int = key("maxUnreadResponseBytes", 32 << 20, min_value=16 << 20, at_start=True)
    # Not RocketMQ's. Without authenticationEnabled anyone may write, so what clients can store is limited.
    max_topics: int = key("maxTopics", 100_000, min_value=1)
    max_topics_of_brokers: int = key("maxTopicsOfBrokers", 500_000, min_value=1)
    max_brokers: int = key("maxBrokers", 2_000, min_value=1)
    max_kv_config_bytes: int = key("maxKvConfigBytes", 4 << 20, min_value=1, max_value=1 << 30)
    config_black_list: str = key("configBlackList", "configBlackList;configStorePath;kvConfigPath", at_start=True)
    # Not RocketMQ's, as all of UserSettings here: where users.json and acls.json of the brokers are, or copies of them.
    users_directory: str = key("usersDirectory", "", at_start=True)
    # Not RocketMQ's: keys that a start takes although they cannot be honoured (see config/guards.py).
    accept_without_effect: str = key("acceptWithoutEffect", "", at_start=True)

    def __post_init__(self) -> None:
        """Check every value."""
        check_values(self)
        if self.authorization_enabled and not self.authentication_enabled:
            raise ConfigError("authorizationEnabled", True, "false without authenticationEnabled=true")
        for name in CREDENTIALS:
            try:
                read_credentials(name, write_fields(self)[name])
            except ValueError as error:
                raise ConfigError(name, MASK, f"the name and password of a user: it {error}") from None

    def with_home(self, home: Path) -> "NamesrvConfig":
        """A copy with files in ``home`` where no path is set."""
        return replace(
            self,
            kv_config_path=self.kv_config_path or str(home / "kvConfig.json"),
            config_store_path=self.config_store_path or str(home / NAMESRV_PROPERTIES),
        )


def read_namesrv_config(entries: Mapping[str, str], *, of_broker: bool = False) -> NamesrvConfig:
    """The settings from text entries. Raises ConfigError for an invalid value.

    ``of_broker`` says that the entries are those of a broker in the same process: its users are not the name server's.
    """
    if of_broker:
        entries = {name: text for name, text in entries.items() if name not in fields_by_key(UserSettings)}
    return NamesrvConfig(**read_fields(NamesrvConfig, entries))


def require_honoured(config: NamesrvConfig, others: Mapping[str, str]) -> list[Reason]:
    """Return the refused reasons of ``others`` that acceptWithoutEffect names. Raises NotHonouredError for another.

    A start calls it before anything is touched.
    """
    accepted = guards.accepted_names(config.accept_without_effect)
    return guards.require_honoured(refused_keys(others, ServerKind.NAMESRV), accepted)


def is_live(name: str) -> bool:
    """Whether a change of a key takes effect in a running name server."""
    spec = fields_by_key(NamesrvConfig).get(name)
    return spec is not None and not spec.metadata["at_start"]


def is_known(name: str) -> bool:
    """Whether a key has an effect on a name server, here or in RocketMQ."""
    return acts(name) or name in WITHOUT_EFFECT


def acts(name: str) -> bool:
    """Whether a key has an effect here; those of ``tls.*`` do."""
    return name in fields_by_key(NamesrvConfig) or name.startswith("tls.")


def without_effect(entries: Mapping[str, str]) -> dict[str, str]:
    """The entries that a name server shows and stores although they have no effect here.

    The ``entries`` may be those of a process with a broker too: keys of the broker and its store are left out.
    """
    return {
        name: text
        for name, text in entries.items()
        if not acts(name) and (name in WITHOUT_EFFECT or not broker_settings.is_known(name))
    }
