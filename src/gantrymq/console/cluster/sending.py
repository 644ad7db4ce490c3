"""Sending one message to a topic, by a form."""

from __future__ import annotations

from starlette.responses import Response
from starlette.routing import Route

from gantrymq.client.producer.producer import Producer
from gantrymq.console.cluster.source import ClusterSource
from gantrymq.console.failures import failure_text
from gantrymq.console.rendering import url
from gantrymq.console.view import View, action, get
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
        return [get("/send", self.ask), action("/send", self.send)]

    def ask(self, view: View) -> Response:
        """The form. ``at`` names the message that was sent last: BROKER/QUEUE/OFFSET."""
        topic, sent = view.text("topic"), view.text("at").rsplit("/", 2)
        with self._source.session(view) as session:
            session.admin.topic_route(topic)
        where = dict(zip(("broker", "queue", "offset"), sent, strict=True)) if len(sent) == 3 else None
        link = url("/message", topic=topic, **where) if where else ""
        return self._form(view, topic, sent=link)

    def send(self, view: View) -> Response:
        """POST: send the message. What the client or the broker refuses is shown above the form, which stays filled."""
        topic = view.text("topic")
        try:
            message = _message(view, topic)
            with self._source.session(view) as session:
                session.admin.topic_route(topic)  # a send would create a missing topic
                with Producer(session.producer_config()) as producer:
                    result = producer.send(message)
        except (GantrymqError, ValueError) as error:
            problem = failure_text(error) if isinstance(error, GantrymqError) else str(error)
            return self._form(view, topic, problem=f"Nothing was sent: {problem}", status=400)
        queue, is_delayed = result.queue, view.number("delay_s", 0, most=_MAX_DELAY_S) > 0
        text = f"{result.msg_id} is stored in queue {queue.queue_id} at {queue.broker_name}."
        if is_delayed:
            text = f"{result.msg_id} is stored at {queue.broker_name}. It is delivered to the topic when it is due."
        if result.status.name != "SEND_OK":
            text = f"{text} {result.status.name}: it may be lost if the broker fails now."
        at = "" if is_delayed else f"{queue.broker_name}/{queue.queue_id}/{result.queue_offset}"
        return view.done(url("/send", topic=topic, at=at), text, is_problem=result.status.name != "SEND_OK")

    def _form(self, view: View, topic: str, *, sent: str = "", problem: str = "", status: int = 200) -> Response:
        names = ("tag", "keys", "properties", "delay_s")
        filled = {name: view.text(name) for name in names} | {"body": _body(view)}
        return view.page("cluster/send.html.j2", status=status, topic=topic, sent=sent, problem=problem, filled=filled)


def _body(view: View) -> str:
    """The body of the form, with the line ends that were typed: a browser sends each as two characters."""
    return "".join(view.texts("body")[-1:]).replace("\r\n", "\n")


def _message(view: View, topic: str) -> Message:
    """The message of a form. Raises GantrymqError or ValueError for what no message may have."""
    delay_s = view.number("delay_s", 0, most=_MAX_DELAY_S)
    properties = {}
    for line in view.text("properties").splitlines():
        name, separator, value = line.partition("=")
        if not separator or not name.strip():
            raise ValueError(f"{line!r} is not a property as NAME=VALUE")
        if name.strip() in _OF_ROCKETMQ:
            raise ValueError(f"{name.strip()} is a property that RocketMQ sets itself")
        properties[name.strip()] = value.strip()
    return Message(
        topic,
        _body(view).encode(),
        tags=view.text("tag"),
        keys=view.text("keys").split(),
        properties=properties,
        delay_ms=delay_s * 1000,
    )
