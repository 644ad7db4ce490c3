"""The broker that ``gantrymq mirror`` copies: where its HA port is, how its files are shaped, and its topics.

Java source of what is asked: 906, 26 and 28 of AdminBrokerProcessor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gantrymq.errors import MQClientError

if TYPE_CHECKING:
    from gantrymq.client.admin.admin_client import AdminClient
    from gantrymq.ha.held_tail import Master

_LOG_SIZE_KEYS = ("mappedFileSizeCommitLog", "mapedFileSizeCommitLog")  # RocketMQ 4 has the second
_SHAPE_KEYS = ("mappedFileSizeConsumeQueue", "maxHashSlotNum", "maxIndexNum", "messageDelayLevel")
_LOGIN_KEY = "haAuthenticationEnabled"
_SYNC_MASTER = "SYNC_MASTER"


class BrokerSource:
    """The master of the broker ``name``. A :class:`gantrymq.ha.mirror.MasterSource`. Thread rule: one thread."""

    def __init__(self, admin: AdminClient, name: str) -> None:
        self._admin, self._name = admin, name
        self._address = ""

    def find(self) -> Master:
        """Return the master as it is now. Raises GantrymqError."""
        from gantrymq.ha.held_tail import Master

        self._address = self._master_address()
        config = self._admin.broker_config(self._address)
        if config.get("enableControllerMode") == "true":
            raise MQClientError(f"the broker {self._name} has a controller, whose replication a mirror does not speak")
        host, _, port = self._admin.ha_address(self._address).rpartition(":")
        ack_timeout_s = (
            int(config.get("slaveTimeout", "3000")) / 1000 if config.get("brokerRole") == _SYNC_MASTER else 0
        )
        return Master((host.strip("[]"), int(port)), int(self._log_file_size(config)), *self.extent(), ack_timeout_s)

    def extent(self) -> tuple[int, int]:
        """Return the first offset of its log and the offset after its last byte. Raises GantrymqError."""
        runtime = self._admin.broker_runtime_info(self._address)
        return max(int(runtime["commitLogMinOffset"]), 0), max(int(runtime["commitLogMaxOffset"]), 0)

    def shape(self) -> dict[str, str]:
        """The broker's settings that shape the files of its store, and whether a copy logs in. Raises GantrymqError."""
        config = self._admin.broker_config(self._master_address())
        shape = {key: config[key] for key in (*_SHAPE_KEYS, _LOGIN_KEY) if key in config}
        return {_LOG_SIZE_KEYS[0]: self._log_file_size(config), **shape}

    def topics(self) -> dict[str, Any]:
        """The content of its topics.json. Raises GantrymqError."""
        from gantrymq.broker.tables.versioned_table import persisted

        table: dict[str, Any] = persisted(self._admin.topic_table(self._address))
        return table

    def _master_address(self) -> str:
        from gantrymq.remoting.bodies.route import MASTER_ID

        brokers = self._admin.cluster_info().broker_addr_table
        if self._name not in brokers:
            known = ", ".join(sorted(brokers)) or "none"
            raise MQClientError(f"the name server knows no broker {self._name}; known: {known}")
        address = brokers[self._name].broker_addrs.get(MASTER_ID)
        if address is None:
            raise MQClientError(f"the broker {self._name} has no master now, only slaves")
        return address

    def _log_file_size(self, config: dict[str, str]) -> str:
        for key in _LOG_SIZE_KEYS:
            if key in config:
                return config[key]
        raise MQClientError(f"the broker {self._name} does not tell the size of its log files")
