"""Lite topics, which RocketMQ's brokers have and gantrymq's do not.

Source: DefaultMQAdminExtImpl, MQClientAPIImpl.
"""

from __future__ import annotations

from gantrymq.client.admin.base import AdminBase, order, question
from gantrymq.client.arguments import checks_arguments, text
from gantrymq.remoting.bodies.lite import BrokerLiteInfo, LiteClientInfo, LiteGroupInfo, LiteTopicInfo, ParentTopicInfo
from gantrymq.remoting.codes import RequestCode
from gantrymq.remoting.headers.lite import (
    GetLiteClientInfoRequestHeader,
    GetLiteGroupInfoRequestHeader,
    GetLiteTopicInfoRequestHeader,
    GetParentTopicInfoRequestHeader,
    TriggerLiteDispatchRequestHeader,
)


@checks_arguments(topic=text)
class LiteAdmin(AdminBase):
    """Lite topics at one broker. ``broker`` is its address, ``topic`` the parent of the lite topics."""

    def broker_lite_info(self, broker: str) -> BrokerLiteInfo:
        """The number of light queues, subscriptions and others of a broker (getBrokerLiteInfo)."""
        return self._client.call(broker, question(RequestCode.GET_BROKER_LITE_INFO, BrokerLiteInfo))

    def parent_topic_info(self, broker: str, topic: str) -> ParentTopicInfo:
        """The lite topics of a topic, as numbers, and its groups (getParentTopicInfo)."""
        header = GetParentTopicInfoRequestHeader(topic=self._full(topic))
        return self._client.call(broker, question(header, ParentTopicInfo))

    def lite_topic_info(self, broker: str, topic: str, lite_topic: str) -> LiteTopicInfo:
        """The offsets and subscribers of a lite topic (getLiteTopicInfo)."""
        header = GetLiteTopicInfoRequestHeader(parent_topic=self._full(topic), lite_topic=lite_topic)
        return self._client.call(broker, question(header, LiteTopicInfo))

    def lite_client_info(self, broker: str, topic: str, group: str, client_id: str) -> LiteClientInfo:
        """The lite topics that a consumer subscribes to (getLiteClientInfo)."""
        header = GetLiteClientInfoRequestHeader(
            parent_topic=self._full(topic), group=self._full(group), client_id=client_id
        )
        return self._client.call(broker, question(header, LiteClientInfo))

    def lite_group_info(
        self, broker: str, group: str, lite_topic: str | None = None, *, top_k: int = 20
    ) -> LiteGroupInfo:
        """How far a group is behind, in one lite topic or in the ``top_k`` furthest ones (getLiteGroupInfo)."""
        header = GetLiteGroupInfoRequestHeader(group=self._full(group), lite_topic=lite_topic, top_k=top_k)
        return self._client.call(broker, question(header, LiteGroupInfo))

    def trigger_lite_dispatch(self, broker: str, group: str, client_id: str | None = None) -> None:
        """Make a broker look for messages for a group's consumers, or for one, now (triggerLiteDispatch)."""
        header = TriggerLiteDispatchRequestHeader(group=self._full(group), client_id=client_id)
        self._client.call(broker, order(header))
