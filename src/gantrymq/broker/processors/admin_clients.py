"""Information about connected clients and their subscriptions, and requests that are forwarded to a consumer.

Source: AdminBrokerProcessor, Broker2Client.
"""

from __future__ import annotations

from collections.abc import Iterable

from gantrymq.broker import refusals
from gantrymq.broker.acl.permissions import GET, READS_CLUSTER, consume, consume_directly, group_in, on, topic_in
from gantrymq.broker.answers import LongAnswers, encode_in_slices
from gantrymq.broker.context import BrokerContext
from gantrymq.broker.processors.route import Route, Routes
from gantrymq.broker.reads.stored_records import StoredRecords
from gantrymq.broker.sessions.producers import ClientChannel
from gantrymq.broker.sessions.sessions import Sessions
from gantrymq.broker.tables.tables import Tables
from gantrymq.clock import Clock, monotonic_ms
from gantrymq.config.broker_settings import LiveConfig
from gantrymq.errors import GantrymqError, RemotingTimeoutError
from gantrymq.model.message import parse_message_id
from gantrymq.remoting.acl import CREDENTIALS
from gantrymq.remoting.bodies.client import (
    ClientConnection,
    ConsumerConnection,
    ProducerConnection,
    ProducerInfo,
    ProducerTableInfo,
)
from gantrymq.remoting.bodies.group import GetConsumerStatusBody, GroupList, QuerySubscriptionResponseBody
from gantrymq.remoting.bodies.topic import TopicList
from gantrymq.remoting.body import decode_body
from gantrymq.remoting.codes import LanguageCode, RequestCode, ResponseCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.headers.consumer import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerConnectionListRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
    GetProducerConnectionListRequestHeader,
    QuerySubscriptionByConsumerRequestHeader,
    QueryTopicConsumeByWhoRequestHeader,
    QueryTopicsByConsumerRequestHeader,
)
from gantrymq.remoting.transport.channel import Channel
from gantrymq.remoting.transport.turns import in_slices

_CALL_TIMEOUT_MS = 10_000
_STATUS_TIMEOUT_MS = 5_000
_V3_0_7_SNAPSHOT, _V3_1_8_SNAPSHOT = 28, 62


class ClientAdminProcessor:
    """Answers the requests of tools about connected clients."""

    def __init__(
        self, config: LiveConfig, clock: Clock, records: StoredRecords, tables: Tables, sessions: Sessions, address: str
    ) -> None:
        self._config, self._clock, self._records, self._address = config, clock, records, address
        self._topics, self._groups, self._offsets = tables.topics, tables.groups, tables.offsets
        self._consumers, self._producers = sessions.consumers, sessions.producers
        self._long = LongAnswers()

    # Connected clients

    def consumers(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """GET_CONSUMER_CONNECTION_LIST."""
        name = request.read(GetConsumerConnectionListRequestHeader).consumer_group
        group = self._consumers.group(name)
        if group is None:
            return request.response(ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{name}] not online")
        body = ConsumerConnection(
            connection_set=_connections(group.clients),
            subscription_table=group.subscriptions,
            consume_type=group.consume_type,
            message_model=group.message_model,
            consume_from_where=group.consume_from_where,
        )
        return request.response(ResponseCode.SUCCESS, body=body.encode())

    def producers(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """GET_PRODUCER_CONNECTION_LIST."""
        name = request.read(GetProducerConnectionListRequestHeader).producer_group
        group = self._producers.groups.get(name)
        if group is None:
            return request.response(ResponseCode.SYSTEM_ERROR, f"the producer group[{name}] not exist")
        body = ProducerConnection(connection_set=_connections(group.values()))
        return request.response(ResponseCode.SUCCESS, body=body.encode())

    async def all_producers(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """GET_ALL_PRODUCER_INFO."""
        # The wall clock time at which the monotonic clock was 0.
        began_ms = self._clock.now_ms() - monotonic_ms(self._clock)
        async with self._long.turn(channel, self._producers.count):
            members = [(name, client) for name, group in self._producers.groups.items() for client in group.values()]
            table: dict[str, list[ProducerInfo]] = {}
            async for name, client in in_slices(members):
                info = ProducerInfo(
                    client_id=client.client_id,
                    remote_ip=f"/{client.channel.address}",
                    language=_language(client.language),
                    version=client.version,
                    last_update_timestamp=began_ms + client.last_update_ms,
                )
                table.setdefault(name, []).append(info)
            body = await encode_in_slices(ProducerTableInfo(data=table))
            return request.response(ResponseCode.SUCCESS, body=body)

    def who_consumes(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """QUERY_TOPIC_CONSUME_BY_WHO: groups with connected clients or committed offsets."""
        topic = request.read(QueryTopicConsumeByWhoRequestHeader).topic
        groups = self._consumers.groups_of(topic) | self._offsets.groups_of(topic)
        return request.response(ResponseCode.SUCCESS, body=GroupList(group_list=sorted(groups)).encode())

    def topics_of(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """QUERY_TOPICS_BY_CONSUMER."""
        topics = self._offsets.topics_of(request.read(QueryTopicsByConsumerRequestHeader).group)
        body = TopicList(topic_list=sorted(topics), broker_addr=self._address)
        return request.response(ResponseCode.SUCCESS, body=body.encode())

    def subscription(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """QUERY_SUBSCRIPTION_BY_CONSUMER."""
        header = request.read(QuerySubscriptionByConsumerRequestHeader)
        subscription = self._consumers.find_subscription(header.group, header.topic or "")
        body = QuerySubscriptionResponseBody(subscription_data=subscription, group=header.group, topic=header.topic)
        return request.response(ResponseCode.SUCCESS, body=body.encode())

    # Forwarded requests

    async def running_info(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """GET_CONSUMER_RUNNING_INFO."""
        header = request.read(GetConsumerRunningInfoRequestHeader)
        return await self._call(request, request.body, header.consumer_group, header.client_id)

    async def consume_directly(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """CONSUME_MESSAGE_DIRECTLY: the message itself is sent to the client."""
        header = request.read(ConsumeMessageDirectlyResultRequestHeader)
        fields = request.ext_fields
        fields["brokerName"] = self._config.broker.broker_name
        topic = self._topics.get(header.topic or "")
        if topic is not None:
            fields["topicSysFlag"] = str(topic.topic_sys_flag)
        group = self._groups.find(header.consumer_group)
        if group is not None:
            fields["groupSysFlag"] = str(group.group_sys_flag)
        try:
            message = await self._records.find(parse_message_id(header.msg_id or "")[1])
        except ValueError as error:
            return request.response(ResponseCode.SYSTEM_ERROR, str(error))
        record = self._records.record_of(message) if message is not None else None
        if record is None:
            return request.response(ResponseCode.SYSTEM_ERROR, f"can not find message by the id, {header.msg_id}")
        return await self._call(request, bytes(record), header.consumer_group, header.client_id or "")

    async def status(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """INVOKE_BROKER_TO_GET_CONSUMER_STATUS: the offsets that each client of a group reports."""
        request_header = request.read(GetConsumerStatusRequestHeader)
        group = self._consumers.group(request_header.group)
        if group is None:
            remark = f"No Any Consumer online in the consumer group: [{request_header.group}]"
            return request.response(ResponseCode.SYSTEM_ERROR, remark)
        table: dict[str, dict[str, int]] = {}
        wanted = (request_header.client_addr or "").strip()
        for client in group.clients:
            if client.version < _V3_0_7_SNAPSHOT:
                raise refusals.client_outdated(client.version)
            if wanted and wanted != client.client_id:
                continue
            header = GetConsumerStatusRequestHeader(topic=request_header.topic, group=request_header.group)
            question = RemotingCommand.request(header, code=RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT)
            try:
                answer = await _invoke(client, question, _STATUS_TIMEOUT_MS)
                if answer.code == ResponseCode.SUCCESS and answer.body:
                    status = decode_body(GetConsumerStatusBody, answer.body)
                    table[client.client_id] = status.message_queue_table
            except GantrymqError:
                continue  # as in RocketMQ, a client that does not answer is left out
        return request.response(ResponseCode.SUCCESS, body=GetConsumerStatusBody(consumer_table=table).encode())

    async def _call(self, request: RemotingCommand, body: bytes, name: str, client_id: str) -> RemotingCommand:
        group = self._consumers.group(name)
        client = group.find(client_id) if group is not None else None
        if client is None:
            return request.response(ResponseCode.SYSTEM_ERROR, f"The Consumer <{name}> <{client_id}> not online")
        if client.version < _V3_1_8_SNAPSHOT:
            remark = (
                f"The Consumer <{client_id}> Version <{client.version}> too low to finish, "
                "please upgrade it to V3_1_8_SNAPSHOT"
            )
            return request.response(ResponseCode.SYSTEM_ERROR, remark)
        # The signature covers neither code nor time. With it, the client could send any request in the caller's name.
        fields = {name: text for name, text in request.ext_fields.items() if name not in CREDENTIALS}
        try:
            invocation = client.channel.invoke(
                RemotingCommand(request.code, ext_fields=fields, body=body), _CALL_TIMEOUT_MS
            )
            request.drop_content()  # the client may take long, and a body may have a megabyte
            del body
            answer = await invocation
        except RemotingTimeoutError as error:
            remark = f"consumer <{name}> <{client_id}> Timeout: {error}"
            return request.response(ResponseCode.CONSUME_MSG_TIMEOUT, remark)
        except GantrymqError as error:
            remark = f"invoke consumer <{name}> <{client_id}> Exception: {error}"
            return request.response(ResponseCode.SYSTEM_ERROR, remark)
        response = request.response(answer.code, answer.remark, body=answer.body)
        response.ext_fields.update(answer.ext_fields)
        return response


async def _invoke(client: ClientChannel, question: RemotingCommand, timeout_ms: int) -> RemotingCommand:
    return await client.channel.invoke(question, timeout_ms)


def _connections(clients: Iterable[ClientChannel]) -> list[ClientConnection]:
    return [
        ClientConnection(
            client_id=client.client_id,
            client_addr=client.channel.address,
            language=_language(client.language),
            version=client.version,
        )
        for client in clients
    ]


def _language(code: int) -> str:
    return LanguageCode(code).name if code in LanguageCode._value2member_map_ else LanguageCode.OTHER.name


def routes(context: BrokerContext) -> Routes:
    """The rows about connected clients."""
    clients = ClientAdminProcessor(
        context.config, context.clock, context.storage.records, context.tables, context.sessions, context.address
    )
    return {
        RequestCode.GET_CONSUMER_CONNECTION_LIST: Route(
            clients.consumers,
            consume(GetConsumerConnectionListRequestHeader, group_in(), actions=GET),
            after_dispatch=False,
        ),
        RequestCode.GET_PRODUCER_CONNECTION_LIST: Route(clients.producers, READS_CLUSTER, after_dispatch=False),
        RequestCode.GET_ALL_PRODUCER_INFO: Route(clients.all_producers, READS_CLUSTER, after_dispatch=False),
        RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: Route(
            clients.who_consumes, on(QueryTopicConsumeByWhoRequestHeader, GET, topic_in()), after_dispatch=False
        ),
        RequestCode.QUERY_TOPICS_BY_CONSUMER: Route(
            clients.topics_of,
            consume(QueryTopicsByConsumerRequestHeader, group_in("group"), actions=GET),
            after_dispatch=False,
        ),
        RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: Route(
            clients.subscription,
            consume(QuerySubscriptionByConsumerRequestHeader, group_in("group"), topic_in(), actions=GET),
            after_dispatch=False,
        ),
        RequestCode.GET_CONSUMER_RUNNING_INFO: Route(
            clients.running_info,
            consume(GetConsumerRunningInfoRequestHeader, group_in(), actions=GET),
            after_dispatch=False,
        ),
        RequestCode.CONSUME_MESSAGE_DIRECTLY: Route(
            clients.consume_directly,
            consume_directly(context.storage.records.topic_at),
            after_dispatch=False,
        ),
        RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: Route(
            clients.status,
            consume(GetConsumerStatusRequestHeader, topic_in(), group_in("group"), actions=GET),
            after_dispatch=False,
        ),
    }
