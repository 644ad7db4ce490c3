"""The settings of replication, under RocketMQ's keys and with its defaults (MessageStoreConfig of 5.5.0)."""

from enum import Enum
from functools import cached_property
from ipaddress import IPv4Network, IPv6Network, ip_network

from gantrymq.config.frozen import settings
from gantrymq.config.keys import key
from gantrymq.config.name_servers import hint, is_address
from gantrymq.errors import ConfigError
from gantrymq.model.java import INT_MAX

# The port of the HA server is listenPort + 1, as RocketMQ's start sets it; a free one if listenPort is 0.
NEXT_TO_LISTEN_PORT = -1
_LARGEST_FRAME_BYTES = (4 << 20) - 12  # a Java slave has a buffer of 4 MiB
_LISTED = 1_000  # entries of haAllowedSlaves


class BrokerRole(Enum):
    """What a broker is in its group. A SYNC_MASTER may let acknowledgements wait for slaves."""

    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"
    SLAVE = "SLAVE"


@settings(frozen=True)
class ReplicationSettings:
    """The role of a broker, its HA server, how many copies an acknowledgement waits for, and what a slave does."""

    broker_role: BrokerRole = key("brokerRole", BrokerRole.ASYNC_MASTER, at_start=True)
    # Not RocketMQ's: without it no slave can copy the log, and no address for slaves is registered.
    ha_enable: bool = key("haEnable", True, at_start=True)
    ha_listen_port: int = key("haListenPort", NEXT_TO_LISTEN_PORT, min_value=-1, max_value=65535, at_start=True)
    ha_send_heartbeat_interval_ms: int = key("haSendHeartbeatInterval", 5_000, min_value=1)
    ha_housekeeping_interval_ms: int = key("haHousekeepingInterval", 20_000, min_value=1)
    ha_transfer_batch_size_bytes: int = key(
        "haTransferBatchSize", 32 << 10, min_value=1, max_value=_LARGEST_FRAME_BYTES
    )
    ha_max_gap_not_in_sync_bytes: int = key("haMaxGapNotInSync", 256 << 20, min_value=1)
    # Not RocketMQ's: a slave without a log gets the last file alone, as from RocketMQ's master.
    ha_last_file_only: bool = key("haLastFileOnly", False)
    # Not RocketMQ's: addresses and networks, separated by commas. Then no other peer may connect, and each is a slave.
    ha_allowed_slaves: str = key("haAllowedSlaves", "")
    # Not RocketMQ's: the HA port speaks TLS alone, by tls.server.…, and a slave connects with TLS, by tls.client.….
    ha_tls_enable: bool = key("haTlsEnable", False, at_start=True)
    # Not RocketMQ's: a slave logs in as a user, and a master gives the log to users and to haAllowedSlaves alone.
    ha_authentication_enabled: bool = key("haAuthenticationEnabled", False, at_start=True)
    in_sync_replicas: int = key("inSyncReplicas", 1, min_value=0)
    min_in_sync_replicas: int = key("minInSyncReplicas", 1, min_value=0)
    total_replicas: int = key("totalReplicas", 1, min_value=0, at_start=True)
    enable_auto_in_sync_replicas: bool = key("enableAutoInSyncReplicas", False)
    slave_timeout_ms: int = key("slaveTimeout", 3_000, min_value=0, max_value=INT_MAX)
    # Of a slave. Empty: the address that the name server knows of the master.
    ha_master_address: str = key("haMasterAddress", "", at_start=True)
    offset_check_in_slave: bool = key("offsetCheckInSlave", False)
    # Not RocketMQ's: a slave acknowledges what is on its disk, and not what it has written.
    ha_ack_durable: bool = key("haAckDurable", False)
    # Not RocketMQ's: whether a slave cuts messages that its master does not have, or waits for `store diverged --cut`.
    ha_truncate: str = key("haTruncate", "command", allowed="command|auto", at_start=True)

    @property
    def is_slave(self) -> bool:
        """Whether the broker copies a master, and does none of a master's work."""
        return self.broker_role is BrokerRole.SLAVE

    def check_replication(self) -> None:
        """Raise ConfigError for a bad network, or if acknowledgements would wait for slaves that cannot connect."""
        self.allowed_slaves, self.master_address  # noqa: B018 (raise for a bad network or address)
        if self.broker_role is BrokerRole.SYNC_MASTER and self.in_sync_replicas > 1 and not self.ha_enable:
            raise ConfigError("haEnable", False, "true if brokerRole=SYNC_MASTER and inSyncReplicas is above 1")

    @property
    def master_address(self) -> tuple[str, int] | None:
        """Host and port of haMasterAddress; None if it is not set. Raises ConfigError."""
        text = self.ha_master_address.strip()
        if text and not is_address(text):
            raise ConfigError("haMasterAddress", text, "host:port" + hint(text))
        return host_and_port(text) if text else None

    @cached_property
    def allowed_slaves(self) -> tuple[IPv4Network | IPv6Network, ...]:
        """The networks of haAllowedSlaves. Raises ConfigError."""
        names = [name.strip() for name in self.ha_allowed_slaves.split(",") if name.strip()]
        try:
            networks = tuple(ip_network(name, strict=False) for name in names)
        except ValueError as error:
            raise ConfigError("haAllowedSlaves", self.ha_allowed_slaves[:64], f"a list of networks: {error}") from None
        if len(networks) > _LISTED:
            raise ConfigError("haAllowedSlaves", self.ha_allowed_slaves[:64], f"at most {_LISTED} entries")
        return networks


def host_and_port(address: str) -> tuple[str, int]:
    """The parts of ``host:port``, an IPv6 host without its brackets. Raises ValueError if the port is no number."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)
