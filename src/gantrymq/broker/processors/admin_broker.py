"""Administration of the broker itself: settings, runtime information, clean-up.

Source: AdminBrokerProcessor.
"""

from __future__ import annotations

import asyncio
import math
import shutil

from gantrymq.broker.acl.permissions import CHANGES_CLUSTER, READS_CLUSTER
from gantrymq.broker.context import BrokerContext
from gantrymq.broker.measures import Measures
from gantrymq.broker.names import SCHEDULE_TOPIC
from gantrymq.broker.outer_api import BrokerOuterAPI
from gantrymq.broker.processors.route import Route, Routes
from gantrymq.broker.replication import Replication
from gantrymq.broker.storage import Storage
from gantrymq.broker.tables.topics import TopicConfigManager
from gantrymq.broker.tables.versioned_table import TableVersion
from gantrymq.clock import Clock
from gantrymq.config.broker_settings import LiveConfig
from gantrymq.config.known_keys import AUTH_KEYS
from gantrymq.config.properties import parse_properties
from gantrymq.config.refused_keys import ServerKind, warned_keys
from gantrymq.errors import ConfigError, GantrymqError, NotHonouredError
from gantrymq.logs import get_logger
from gantrymq.model.java import INT_MAX
from gantrymq.remoting.bodies.topic import KVTable
from gantrymq.remoting.codes import RequestCode, ResponseCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.headers.broker import (
    ExchangeHAInfoRequestHeader,
    GetBrokerConfigResponseHeader,
    NotifyBrokerRoleChangedRequestHeader,
)
from gantrymq.remoting.transport.channel import Channel

_PERMISSION = "brokerPermission"
# Not updatable whatever configBlackList says: the list itself, the locations of files, access control.
_NEVER_UPDATED = {"configBlackList", "brokerConfigPath", "rocketmqHome", "aclEnable", "aclPlainFile"} | AUTH_KEYS
VERSION_TEXT = "V5_5_0"
_FORCE = "force"  # not RocketMQ's: a field of NOTIFY_BROKER_ROLE_CHANGED

log = get_logger("gantrymq.broker")


class BrokerAdminProcessor:
    """Settings, runtime information and clean-up."""

    def __init__(
        self,
        config: LiveConfig,
        clock: Clock,
        storage: Storage,
        topics: TopicConfigManager,
        measures: Measures,
        outer: BrokerOuterAPI,
        replication: Replication,
        address: str,
    ) -> None:
        self._config, self._clock, self._topics, self._outer = config, clock, topics, outer
        self._replication, self._address = replication, address
        self._store, self._puts, self._stats, self._store_stats = (
            storage.store,
            storage.puts,
            measures.stats,
            measures.store,
        )
        self._version = TableVersion(clock)
        self._writing = asyncio.Lock()
        self._black_list = _NEVER_UPDATED | set(config.broker.config_black_list.split(";"))  # read once, at the start

    # Settings

    async def update_config(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """UPDATE_BROKER_CONFIG: apply all settings or none, at once, and store them in broker.conf.

        A setting that is only read at the start is rejected, and so is a value that cannot be honoured. An unknown key
        is ignored. Another key that acts in RocketMQ and has no effect here is logged.
        """
        entries = parse_properties(request.body.decode("utf-8", "replace"))
        if not self._black_list.isdisjoint(entries):
            return request.response(ResponseCode.NO_PERMISSION, "Can not update config in black list.")
        try:
            self._config.update(entries, running=True)
        except ConfigError as error:
            return request.response(ResponseCode.INVALID_PARAMETER, str(error))
        except NotHonouredError as error:
            return request.response(ResponseCode.INVALID_PARAMETER, error.while_running)
        for reason in warned_keys(entries, ServerKind.BROKER):
            log.warning(reason.text)
        self._store.reconfigure(self._config.store)
        self._version.next()
        try:
            async with self._writing:
                await asyncio.get_running_loop().run_in_executor(None, self._config.keep, entries)
        except (GantrymqError, OSError) as error:
            return request.response(ResponseCode.SYSTEM_ERROR, f"in effect, but not saved for the next start: {error}")
        if _PERMISSION in entries:
            self._topics.renew()
            await self._outer.settled()
        return request.response(ResponseCode.SUCCESS)

    def get_config(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """GET_BROKER_CONFIG: the current settings, as the text of a broker.conf."""
        header = GetBrokerConfigResponseHeader(version=self._version.value.encode().decode())
        return request.response(ResponseCode.SUCCESS, header=header, body=self._config.to_properties().encode())

    # Runtime information

    def runtime_info(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """GET_BROKER_RUNTIME_INFO, under RocketMQ's keys. The rates of timers are 0.

        ``acceptedWithoutEffect`` is there if the start took something that it does not honour.
        """
        broker, now_ms = self._config.broker, self._clock.now_ms()
        table = self._store_stats.runtime_info(now_ms) | self._store_info()
        table |= {
            "brokerActive": "true",
            "brokerVersionDesc": VERSION_TEXT,
            "msgPutTotalTodayNow": str(self._stats.put_total),
            "msgGetTotalTodayNow": str(self._stats.get_total),
            "startAcceptSendRequestTimeStamp": str(broker.start_accept_send_request_timestamp_ms),
            "sendThreadPoolQueueSize": str(len(self._puts)),
            "sendThreadPoolQueueCapacity": str(broker.send_thread_pool_queue_capacity),
            "sendThreadPoolQueueHeadWaitTimeMills": str(self._puts.head_wait_ms),
            "pullThreadPoolQueueCapacity": str(broker.pull_thread_pool_queue_capacity),
        }
        table["queryThreadPoolQueueCapacity"] = "20000"
        for name in ("pull", "litePull", "query", "ack"):
            table.setdefault(f"{name}ThreadPoolQueueSize", "0")
            table.setdefault(f"{name}ThreadPoolQueueCapacity", "100000")
            table.setdefault(f"{name}ThreadPoolQueueHeadWaitTimeMills", "0")
        table |= {"EndTransactionQueueSize": "0", "EndTransactionThreadPoolQueueCapacity": "100000"}
        table |= self._timer_info(now_ms)
        if accepted := self._config.accepted:  # not RocketMQ's
            table["acceptedWithoutEffect"] = ",".join(reason.name for reason in accepted)
        return request.response(ResponseCode.SUCCESS, body=KVTable(table=table).encode())

    def _timer_info(self, now_ms: int) -> dict[str, str]:
        timers = self._store.timers
        progress = timers.progress if timers is not None else None
        return {
            "timerReadBehind": str(max(now_ms - progress.read_ms, 0) // 1000 if progress is not None else 0),
            "timerOffsetBehind": str(progress.behind_messages if progress is not None else 0),
            "timerCongestNum": str(timers.congestion if timers is not None else 0),
            "timerEnqueueTps": "0.0",
            "timerDequeueTps": "0.0",
        }

    def _store_info(self) -> dict[str, str]:
        store = self._store
        used = str(store.disk_used_ratio)
        disk = shutil.disk_usage(store.path)
        behind = store.max_phy_offset - store.flushed_offset
        first = store.message_at(store.min_phy_offset)
        table = {
            **{f"commitLogDiskRatio_{path}": used for path in store.commit_log_paths},
            "commitLogDiskRatio": used,
            "consumeQueueDiskRatio": used,
            "commitLogMinOffset": str(store.min_phy_offset),
            "commitLogMaxOffset": str(store.max_phy_offset),
            "dispatchBehindBytes": str(store.dispatch_behind_bytes),
            "pageCacheLockTimeMills": "0",
            "earliestMessageTimeStamp": str(first.store_timestamp_ms if first is not None else -1),
            "remainTransientStoreBufferNumbs": str(INT_MAX),
            "remainHowManyDataToFlush": _bytes(behind),
            "commitLogDirCapacity": f"Total : {_bytes(disk.total)}, Free : {_bytes(disk.free)}.",
        }
        for level, offset in sorted(store.delay_offsets.items()):
            end = store.max_offset_in_queue(SCHEDULE_TOPIC, level - 1)
            table[f"scheduleMessageOffset_{level}"] = f"{offset},{end}"
        return table

    def ha_status(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """GET_BROKER_HA_STATUS: the slaves of this master."""
        return request.response(ResponseCode.SUCCESS, body=self._replication.status().encode())

    def exchange_ha_info(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """EXCHANGE_BROKER_HA_INFO: where slaves copy this master. The fields that a slave would take have no effect."""
        is_asked = request.read(ExchangeHAInfoRequestHeader).master_ha_address is None
        return request.response(ResponseCode.SUCCESS, header=self._replication.exchange() if is_asked else None)

    async def change_role(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """NOTIFY_BROKER_ROLE_CHANGED: a slave that is named as the master becomes one. Without effect at a master.

        In RocketMQ a controller sends it. It is answered before the broker starts again.
        """
        header, slave = request.read(NotifyBrokerRoleChangedRequestHeader), self._replication.slave
        if slave is None or header.master_address != self._address:
            return request.response(ResponseCode.SUCCESS)
        try:
            await slave.promote(is_forced=request.ext_fields.get(_FORCE) == "true")
        except (GantrymqError, OSError) as error:
            return request.response(ResponseCode.SYSTEM_ERROR, str(error))
        return request.response(ResponseCode.SUCCESS)

    # Clean-up

    def clean_queues(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """CLEAN_EXPIRED_CONSUMEQUEUE: no work, because queues are cleaned whenever a file of the log was deleted."""
        return request.response(ResponseCode.SUCCESS)

    def delete_expired(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """DELETE_EXPIRED_COMMITLOG: delete expired files in the next twenty runs of the cleaner, at any hour."""
        self._store.delete_expired_files()
        return request.response(ResponseCode.SUCCESS)


def _bytes(count: int) -> str:
    """A human-readable number of bytes, as MixAll.humanReadableByteCount."""
    if count < 1024:
        return f"{count} B"
    power = int(math.log(count, 1024))
    return f"{count / 1024**power:.1f} {'KMGTPE'[power - 1]}iB"


def routes(context: BrokerContext) -> Routes:
    """The rows of settings, runtime information and clean-up."""
    broker = BrokerAdminProcessor(
        context.config,
        context.clock,
        context.storage,
        context.tables.topics,
        context.measures,
        context.outer,
        context.replication,
        context.address,
    )
    return {
        RequestCode.UPDATE_BROKER_CONFIG: Route(broker.update_config, CHANGES_CLUSTER, after_dispatch=False),
        RequestCode.GET_BROKER_CONFIG: Route(broker.get_config, READS_CLUSTER, after_dispatch=False),
        RequestCode.GET_BROKER_RUNTIME_INFO: Route(broker.runtime_info, READS_CLUSTER, after_dispatch=False),
        RequestCode.GET_BROKER_HA_STATUS: Route(broker.ha_status, READS_CLUSTER, after_dispatch=False),
        RequestCode.EXCHANGE_BROKER_HA_INFO: Route(broker.exchange_ha_info, CHANGES_CLUSTER, after_dispatch=False),
        RequestCode.NOTIFY_BROKER_ROLE_CHANGED: Route(broker.change_role, CHANGES_CLUSTER, after_dispatch=False),
        RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: Route(broker.clean_queues, CHANGES_CLUSTER, after_dispatch=False),
        RequestCode.DELETE_EXPIRED_COMMITLOG: Route(broker.delete_expired, CHANGES_CLUSTER, after_dispatch=False),
    }
