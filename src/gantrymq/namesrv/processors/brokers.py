"""Requests of brokers about themselves, and of tools about brokers.

Source: DefaultRequestProcessor.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable, Coroutine, Iterable

from gantrymq.namesrv.brokers import BrokerAddrInfo
from gantrymq.namesrv.configuration import NamesrvConfiguration
from gantrymq.namesrv.kv_config import ORDER_TOPIC_CONFIG, WIPED_BROKERS, KVConfigManager
from gantrymq.namesrv.routes import Leaving, MinBrokerIdNotice, Registration, RouteInfoManager
from gantrymq.namesrv.topics import check_names
from gantrymq.remoting.bodies.registration import decode_compressed, decode_registration, decode_wrapper
from gantrymq.remoting.bodies.route import GetBrokerMemberGroupResponseBody
from gantrymq.remoting.bodies.topic import DataVersion, TopicConfigAndMappingSerializeWrapper
from gantrymq.remoting.body import decode_request
from gantrymq.remoting.codes import RequestCode, ResponseCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.headers.broker import GetBrokerMemberGroupRequestHeader
from gantrymq.remoting.headers.namesrv import (
    AddWritePermOfBrokerRequestHeader,
    AddWritePermOfBrokerResponseHeader,
    BrokerHeartbeatRequestHeader,
    QueryDataVersionRequestHeader,
    QueryDataVersionResponseHeader,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    UnRegisterBrokerRequestHeader,
    WipeWritePermOfBrokerRequestHeader,
    WipeWritePermOfBrokerResponseHeader,
)
from gantrymq.remoting.transport.channel import Channel
from gantrymq.remoting.transport.dispatcher import Processor

ZONE_NAME = "__ZONE_NAME"
_V3_0_11 = 37  # the body of older registrations has only the topics
_DECODED_AT_ONCE_BYTES = 64 * 1024
_CRC_MASK = 0x7FFFFFFF  # UtilAll.crc32


class BrokerProcessor:
    """``unregister`` queues a broker that leaves, or returns False if too many are queued. ``notify`` sends notices."""

    def __init__(
        self,
        routes: RouteInfoManager,
        kv: KVConfigManager,
        configuration: NamesrvConfiguration,
        unregister: Callable[[Leaving], bool],
        notify: Callable[[Iterable[MinBrokerIdNotice]], None],
    ) -> None:
        self._routes, self._kv, self._configuration = routes, kv, configuration
        self._unregister, self._notify = unregister, notify
        self._decoding = asyncio.Lock()

    def by_code(self) -> dict[int, Processor]:
        """The processors by request code."""
        return {
            RequestCode.REGISTER_BROKER: self.register,
            RequestCode.UNREGISTER_BROKER: self.unregister,
            RequestCode.BROKER_HEARTBEAT: self.heart_beat,
            RequestCode.QUERY_DATA_VERSION: self.data_version,
            RequestCode.GET_BROKER_MEMBER_GROUP: self.member_group,
            RequestCode.GET_BROKER_CLUSTER_INFO: self.cluster_info,
            RequestCode.WIPE_WRITE_PERM_OF_BROKER: self.wipe_write_perm,
            RequestCode.ADD_WRITE_PERM_OF_BROKER: self.add_write_perm,
        }

    def register(
        self, channel: Channel, request: RemotingCommand
    ) -> RemotingCommand | Coroutine[None, None, RemotingCommand]:
        """REGISTER_BROKER: register a broker, or renew it. A long registration is decoded in another thread."""
        header = request.read(RegisterBrokerRequestHeader)
        if header.compressed or len(request.body) > _DECODED_AT_ONCE_BYTES:
            return self._register_later(channel, request, header)
        return self._register(request, _registration(channel, request, header))

    async def _register_later(
        self, channel: Channel, request: RemotingCommand, header: RegisterBrokerRequestHeader
    ) -> RemotingCommand:
        async with self._decoding:  # one at a time, to limit memory and CPU
            loop = asyncio.get_running_loop()
            registration = await loop.run_in_executor(None, _registration, channel, request, header)
        if channel.is_closed:  # otherwise nothing would ever remove the broker
            return request.response(ResponseCode.SYSTEM_ERROR, "the connection was closed")
        return self._register(request, registration)

    def _register(self, request: RemotingCommand, registration: Registration | None) -> RemotingCommand:
        if registration is None:
            return request.response(ResponseCode.SYSTEM_ERROR, "crc32 not match")
        result = self._routes.register(registration)
        if result is None:
            return request.response(ResponseCode.SYSTEM_ERROR, "register broker failed")
        self._notify(result.notices)
        ordered = None
        if self._configuration.config.return_order_topic_config_to_broker:
            ordered = self._kv.encoded_namespace(ORDER_TOPIC_CONFIG)
        return request.response(
            ResponseCode.SUCCESS,
            header=RegisterBrokerResponseHeader(ha_server_addr=result.ha_server_addr, master_addr=result.master_addr),
            body=ordered or b"",
        )

    def unregister(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """UNREGISTER_BROKER: remove a broker."""
        header = request.read(UnRegisterBrokerRequestHeader)
        broker_key = BrokerAddrInfo(header.cluster_name, header.broker_addr)
        is_accepted = self._unregister(Leaving(broker_key, header.broker_name, header.broker_id))
        return request.response(ResponseCode.SUCCESS if is_accepted else ResponseCode.SYSTEM_ERROR)

    def heart_beat(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """BROKER_HEARTBEAT: record a heartbeat."""
        header = request.read(BrokerHeartbeatRequestHeader)
        self._routes.record_heartbeat(BrokerAddrInfo(header.cluster_name, header.broker_addr))
        return request.response(ResponseCode.SUCCESS)

    def data_version(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """QUERY_DATA_VERSION: whether a broker's topics changed since its registration. It counts as a heartbeat."""
        header = request.read(QueryDataVersionRequestHeader)
        broker_key = BrokerAddrInfo(header.cluster_name, header.broker_addr)
        version = self._routes.version(broker_key)
        self._routes.record_heartbeat(broker_key)
        sent_version = decode_request(DataVersion, request.body)
        return request.response(
            ResponseCode.SUCCESS,
            header=QueryDataVersionResponseHeader(changed=version != sent_version),
            body=version.encode() if version is not None else b"",
        )

    def member_group(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """GET_BROKER_MEMBER_GROUP: the addresses of a broker's master and slaves."""
        header = request.read(GetBrokerMemberGroupRequestHeader)
        group = self._routes.member_group(header.cluster_name, header.broker_name)
        body = GetBrokerMemberGroupResponseBody(broker_member_group=group)
        return request.response(ResponseCode.SUCCESS, body=body.encode(standard=False))

    def cluster_info(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """GET_BROKER_CLUSTER_INFO: all brokers and clusters."""
        return request.response(ResponseCode.SUCCESS, body=self._routes.cluster_info().encode(standard=False))

    async def wipe_write_perm(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """WIPE_WRITE_PERM_OF_BROKER: remove a broker's write permission.

        A restart of broker or name server keeps it so.
        """
        name = request.read(WipeWritePermOfBrokerRequestHeader).broker_name
        count = self._routes.wipe_write_perm(name)
        if count:
            await self._kv.put(WIPED_BROKERS, name, "true")
        header = WipeWritePermOfBrokerResponseHeader(wipe_topic_count=count)
        return request.response(ResponseCode.SUCCESS, header=header)

    async def add_write_perm(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """ADD_WRITE_PERM_OF_BROKER: give a broker its write permission back."""
        name = request.read(AddWritePermOfBrokerRequestHeader).broker_name
        count = self._routes.add_write_perm(name)
        await self._kv.delete(WIPED_BROKERS, name)
        header = AddWritePermOfBrokerResponseHeader(add_topic_count=count)
        return request.response(ResponseCode.SUCCESS, header=header)


def _registration(
    channel: Channel, request: RemotingCommand, header: RegisterBrokerRequestHeader
) -> Registration | None:
    """Decode a registration of any format. None if its checksum is wrong. Raises RemotingCommandError."""
    if header.body_crc32 not in {0, zlib.crc32(request.body) & _CRC_MASK}:
        return None
    filter_servers: list[str] | None = None
    if not request.body:
        topics = TopicConfigAndMappingSerializeWrapper()
        filter_servers = None if request.version < _V3_0_11 else []
    elif request.version < _V3_0_11:
        topics = decode_wrapper(request.body)
    else:
        body = decode_compressed(request.body) if header.compressed else decode_registration(request.body)
        topics, filter_servers = body.topic_config_serialize_wrapper, body.filter_server_list
    registration = Registration(header, topics, channel, filter_servers, request.ext_fields.get(ZONE_NAME))
    check_names(registration.queues())
    return registration
