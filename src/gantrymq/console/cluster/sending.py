"""Sending one message to a topic, by a form."""

from __future__ import annotations

from starlette.responses import Response
from starlette.routing import Route

from gantrymq.client.producer.producer import Producer
from gantrymq.console.cluster.source import ClusterSource
from gantrymq.console.failures import failure_text
from gantrymq.console.page_request import PageRequest, action, get
from gantrymq.console.rendering import url
from gantrymq.errors import GantrymqError
from gantrymq.model import message as properties_of
from gantrymq.model.message import Message

# MessageConst.STRING_HASH_SET: a client of RocketMQ refuses them too.
_OF_ROCKETMQ = frozenset(value for name, value in vars(properties_of).items() if name.startswith("PROPERTY_"))
_MAX_DELAY_S = 10 * 365 * 24 * 3600


class SendPages:
    """The form for a message, and the send."""

    def __init__(self, source: ClusterSource) -> None:
        self._source = source

    def routes(self) -> list[Route]:
        """The form (GET) and the send (POST)."""
        return [get("/send", self.show_form), action("/send", self.send)]

    def show_form(self, request: PageRequest) -> Response:
        """The form. ``at`` names the message that was sent last: BROKER/QUEUE/OFFSET."""
        topic, sent = request.text("topic"), request.text("at").rsplit("/", 2)
        with self._source.session(request) as session:
            session.admin.topic_route(topic)
        where = dict(zip(("broker", "queue", "offset"), sent, strict=True)) if len(sent) == 3 else None
        link = url("/message", topic=topic, **where) if where else ""
        return self._form(request, topic, sent=link)

    def send(self, request: PageRequest) -> Response:
        """POST: send the message. What the client or the broker refuses is shown above the form, which stays filled."""
        topic = request.text("topic")
        try:
            message = _message(request, topic)
            with self._source.session(request) as session:
                session.admin.topic_route(topic)  # a send would create a missing topic
                with Producer(session.producer_config()) as producer:
                    result = producer.send(message)
        except (GantrymqError, ValueError) as error:
            problem = failure_text(error) if isinstance(error, GantrymqError) else str(error)
            return self._form(request, topic, problem=f"Nothing was sent: {problem}", status=400)
        queue, is_delayed = result.queue, request.number("delay_s", 0, maximum=_MAX_DELAY_S) > 0
        text = f"{result.msg_id} is stored in queue {queue.queue_id} at {queue.broker_name}."
        if is_delayed:
            text = f"{result.msg_id} is stored at {queue.broker_name}. It is delivered to the topic when it is due."
        if result.status.name != "SEND_OK":
            text = f"{text} {result.status.name}: it may be lost if the broker fails now."
        at = "" if is_delayed else f"{queue.broker_name}/{queue.queue_id}/{result.queue_offset}"
        return request.done(url("/send", topic=topic, at=at), text, is_problem=result.status.name != "SEND_OK")

    def _form(
        self, request: PageRequest, topic: str, *, sent: str = "", problem: str = "", status: int = 200
    ) -> Response:
        names = ("tag", "keys", "properties", "delay_s")
        filled = {name: request.text(name) for name in names} | {"body": _body(request)}
        return request.page(
            "cluster/send.html.j2", status=status, topic=topic, sent=sent, problem=problem, filled=filled
        )


def _body(request: PageRequest) -> str:
    """The body of the form, with the line ends that were typed: a browser sends each as two characters."""
    return "".join(request.texts("body")[-1:]).replace("\r\n", "\n")


def _message(request: PageRequest, topic: str) -> Message:
    """The message of a form. Raises GantrymqError or ValueError for what no message may have."""
    delay_s = request.number("delay_s", 0, maximum=_MAX_DELAY_S)
    properties = {}
    for line in request.text("properties").splitlines():
        name, separator, value = line.partition("=")
        if not separator or not name.strip():
            raise ValueError(f"{line!r} is not a property as NAME=VALUE")
        if name.strip() in _OF_ROCKETMQ:
            raise ValueError(f"{name.strip()} is a property that RocketMQ sets itself")
        properties[name.strip()] = value.strip()
    return Message(
        topic,
        _body(request).encode(),
        tags=request.text("tag"),
        keys=request.text("keys").split(),
        properties=properties,
        delay_ms=delay_s * 1000,
    )
