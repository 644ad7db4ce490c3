"""Delivering one message to one connected consumer again, and what it answers. No offset changes."""

from __future__ import annotations

from starlette.responses import Response
from starlette.routing import Route

from gantrymq.console.cluster.groups import Member, connection_of
from gantrymq.console.cluster.messages import message_of
from gantrymq.console.cluster.source import ClusterSource
from gantrymq.console.rendering import url
from gantrymq.console.view import View, action, get
from gantrymq.errors import MQClientError

_GOOD = ("CR_SUCCESS", "CR_COMMIT")
_LINK = ("topic", "broker", "queue", "offset", "id")


class DeliveryPages:
    """The choice of the consumer, and the delivery."""

    def __init__(self, source: ClusterSource) -> None:
        self._source = source

    def routes(self) -> list[Route]:
        """The question (GET) and the delivery (POST)."""
        return [get("/deliver", self.ask), action("/deliver", self.deliver)]

    def ask(self, view: View) -> Response:
        """Which consumer of the group, for which message."""
        group = view.text("group")
        with self._source.session(view) as session:
            message = message_of(view, session)
            connection = connection_of(session, group)
        members = [Member.of(one) for one in connection.connection_set] if connection else []
        return view.page(
            "cluster/deliver.html.j2",
            group=group, message=message, link={name: view.text(name) for name in _LINK},
            members=sorted(members, key=lambda one: one.client_id),
        )  # fmt: skip

    def deliver(self, view: View) -> Response:
        """POST: make the consumer consume the message now."""
        group, client = view.text("group"), view.text("client")
        with self._source.session(view) as session:
            connection = connection_of(session, group)
            if connection is None or all(one.client_id != client for one in connection.connection_set):
                raise MQClientError(f"{client} is no consumer of {group} any more. Nothing was delivered.")
            message = message_of(view, session)
            found = session.admin.consume_message_directly(
                group, client, message.topic, message.offset_msg_id, str(message.store_host)
            )
        result = found.consume_result or "nothing"
        more = f" {found.remark}" if found.remark else ""
        text = f"{client} answered {result} after {found.spent_time_mills:,} ms.{more}"
        link = {name: view.text(name) for name in _LINK} | {"id": message.msg_id}
        return view.done(url("/trace", **link), text, is_problem=result not in _GOOD)
