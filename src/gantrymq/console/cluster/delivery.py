"""Delivering one message to one connected consumer again, and what it answers. No offset changes."""

from __future__ import annotations

from starlette.responses import Response
from starlette.routing import Route

from gantrymq.console.cluster.groups import Member, connection_of
from gantrymq.console.cluster.messages import message_of
from gantrymq.console.cluster.source import ClusterSource
from gantrymq.console.page_request import PageRequest, action, get
from gantrymq.console.rendering import url
from gantrymq.errors import MQClientError

_GOOD = ("CR_SUCCESS", "CR_COMMIT")
_LINK = ("topic", "broker", "queue", "offset", "id")


class DeliveryPages:
    """The choice of the consumer, and the delivery."""

    def __init__(self, source: ClusterSource) -> None:
        self._source = source

    def routes(self) -> list[Route]:
        """The question (GET) and the delivery (POST)."""
        return [get("/deliver", self.show_form), action("/deliver", self.deliver)]

    def show_form(self, request: PageRequest) -> Response:
        """Which consumer of the group, for which message."""
        group = request.text("group")
        with self._source.session(request) as session:
            message = message_of(request, session)
            connection = connection_of(session, group)
        members = [Member.of(member) for member in connection.connection_set] if connection else []
        return request.page(
            "cluster/deliver.html.j2",
            group=group,
            message=message,
            link={name: request.text(name) for name in _LINK},
            members=sorted(members, key=lambda item: item.client_id),
        )

    def deliver(self, request: PageRequest) -> Response:
        """POST: make the consumer consume the message now."""
        group, client = request.text("group"), request.text("client")
        with self._source.session(request) as session:
            connection = connection_of(session, group)
            if connection is None or all(member.client_id != client for member in connection.connection_set):
                raise MQClientError(f"{client} is no consumer of {group} any more. Nothing was delivered.")
            message = message_of(request, session)
            direct = session.admin.consume_message_directly(
                group, client, message.topic, message.offset_msg_id, session.broker(message.broker_name).address
            )
        result = direct.consume_result or "nothing"
        more = f" {direct.remark}" if direct.remark else ""
        text = f"{client} answered {result} after {direct.spent_time_mills:,} ms.{more}"
        link = {name: request.text(name) for name in _LINK} | {"id": message.msg_id}
        return request.done(url("/trace", **link), text, is_problem=result not in _GOOD)
