"""Requests about the routes and the lists of topics.

Source: ClientRequestProcessor, DefaultRequestProcessor, ZoneRouteRPCHook.
"""

from __future__ import annotations

from collections.abc import Callable

from gantrymq.namesrv.configuration import NamesrvConfiguration
from gantrymq.namesrv.kv_config import ORDER_TOPIC_CONFIG, KVConfigManager
from gantrymq.namesrv.processors.brokers import ZONE_NAME
from gantrymq.namesrv.route_data import in_zone
from gantrymq.namesrv.routes import RouteInfoManager
from gantrymq.remoting.bodies.route import TopicRouteData
from gantrymq.remoting.bodies.topic import TopicList
from gantrymq.remoting.body import decode_request
from gantrymq.remoting.codes import VERSION_4_9_4, RequestCode, ResponseCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.headers.namesrv import (
    DeleteTopicFromNamesrvRequestHeader,
    GetRouteInfoRequestHeader,
    RegisterTopicRequestHeader,
)
from gantrymq.remoting.headers.topic import GetTopicsByClusterRequestHeader
from gantrymq.remoting.transport.channel import Channel
from gantrymq.remoting.transport.dispatcher import Processor

ZONE_MODE = "__ZONE_MODE"
_FAQ = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."


class TopicProcessor:
    """``now_ms`` returns a monotonic time. The construction counts as the name server's start (needWaitForService)."""

    def __init__(
        self,
        routes: RouteInfoManager,
        kv: KVConfigManager,
        configuration: NamesrvConfiguration,
        now_ms: Callable[[], int],
    ) -> None:
        self._routes, self._kv, self._configuration, self._now_ms = routes, kv, configuration, now_ms
        self._started_ms = now_ms()

    def by_code(self) -> dict[int, Processor]:
        """The processors by request code."""
        routes = self._routes
        return {
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self.route,
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self.all_topics,
            RequestCode.DELETE_TOPIC_IN_NAMESRV: self.delete,
            RequestCode.REGISTER_TOPIC_IN_NAMESRV: self.register,
            RequestCode.GET_TOPICS_BY_CLUSTER: self.topics_of_cluster,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: self.system_topics,
            RequestCode.GET_UNIT_TOPIC_LIST: self._listing(routes.unit_topics),
            RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: self._listing(routes.unit_sub_topics),
            RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: self._listing(routes.unit_sub_ununit_topics),
        }

    def route(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """GET_ROUTEINFO_BY_TOPIC: the brokers of a topic, and their numbers of queues."""
        config, header = self._configuration.config, request.read(GetRouteInfoRequestHeader)
        wait_ms = config.wait_seconds_for_service * 1000
        if config.need_wait_for_service and self._now_ms() - self._started_ms < wait_ms:
            return request.response(ResponseCode.SYSTEM_ERROR, "name server not ready")
        route = self._routes.route(header.topic)
        if route is None:
            remark = f"No topic route info in name server for the topic: {header.topic}{_FAQ}"
            return request.response(ResponseCode.TOPIC_NOT_EXIST, remark)
        if config.order_message_enable:
            route.order_topic_conf = self._kv.get(ORDER_TOPIC_CONFIG, header.topic)
        standard = request.version >= VERSION_4_9_4 or bool(header.accept_standard_json_only)
        return request.response(ResponseCode.SUCCESS, body=_by_zone(route, request).encode(standard=standard))

    def register(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """REGISTER_TOPIC_IN_NAMESRV: register queues of a topic at brokers.

        Unknown brokers are ignored without an error.
        """
        header = request.read(RegisterTopicRequestHeader)
        queues = decode_request(TopicRouteData, request.body).queue_datas if request.body else []
        if queues:
            self._routes.register_topic(header.topic, queues)
        return request.response(ResponseCode.SUCCESS)

    def delete(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """DELETE_TOPIC_IN_NAMESRV: remove a topic."""
        header = request.read(DeleteTopicFromNamesrvRequestHeader)
        self._routes.delete_topic(header.topic, header.cluster_name)
        return request.response(ResponseCode.SUCCESS)

    def all_topics(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """GET_ALL_TOPIC_LIST_FROM_NAMESERVER, if enableAllTopicList is set."""
        if not self._configuration.config.enable_all_topic_list:
            return _disabled(request)
        return request.response(ResponseCode.SUCCESS, body=self._routes.all_topics().encode())

    def topics_of_cluster(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """GET_TOPICS_BY_CLUSTER, if enableTopicList is set."""
        if not self._configuration.config.enable_topic_list:
            return _disabled(request)
        cluster = request.read(GetTopicsByClusterRequestHeader).cluster
        return request.response(ResponseCode.SUCCESS, body=self._routes.topics_of_cluster(cluster).encode())

    def system_topics(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """GET_SYSTEM_TOPIC_LIST_FROM_NS: the topics named after clusters and brokers."""
        return request.response(ResponseCode.SUCCESS, body=self._routes.system_topics().encode())

    def _listing(self, topics: Callable[[], TopicList]) -> Processor:
        """A processor that answers a list of topics, if enableTopicList is set."""

        def answer(channel: Channel, request: RemotingCommand) -> RemotingCommand:
            if not self._configuration.config.enable_topic_list:
                return _disabled(request)
            return request.response(ResponseCode.SUCCESS, body=topics().encode())

        return answer


def _by_zone(route: TopicRouteData, request: RemotingCommand) -> TopicRouteData:
    """The route, reduced to the client's zone if the request asks for that."""
    fields = request.ext_fields
    zone_name = fields.get(ZONE_NAME, "")
    wanted = fields.get(ZONE_MODE, "").lower() == "true" and zone_name.strip() != ""
    return in_zone(route, zone_name) if wanted else route


def _disabled(request: RemotingCommand) -> RemotingCommand:
    return request.response(ResponseCode.SYSTEM_ERROR, "disable")
