"""Changing a running broker: one setting, its write permission at the name servers, and a clean-up now."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route

from gantrymq.console.cluster.fingerprint import conflict
from gantrymq.console.cluster.source import Broker, ClusterSession, ClusterSource
from gantrymq.console.page_request import PageRequest, action, get
from gantrymq.console.rendering import url

# The value of a form: its button, and what it does.
TASKS = {
    "wipe": ("Stop new messages", "Producers no longer choose the broker: its topics lose their write permission."),
    "add": ("Allow new messages", "Producers choose the broker again: its topics get their write permission."),
    "expired-logs": (
        "Delete expired log files",
        "Files older than fileReservedTime. Otherwise they go at deleteWhen.",
    ),
    "expired-queues": ("Delete expired queue files", "Files of consume queues that lead only to deleted log files."),
    "unused-topics": ("Delete queues without a topic", "Consume queues of topics that are deleted, with their files."),
}


class BrokerChangePages:
    """The pages that change the settings of brokers and run their tasks."""

    def __init__(self, source: ClusterSource) -> None:
        self._source = source

    def routes(self) -> list[Route]:
        """The form for a setting, the tasks, and their changes."""
        return [
            get("/broker-setting", self.ask_setting),
            get("/broker-tasks", self.tasks),
            action("/broker-setting", self.change_setting),
            action("/broker-tasks", self.run_task),
        ]

    def ask_setting(self, request: PageRequest) -> Response:
        """The form for a new value of one setting."""
        key = request.text("key")
        with self._source.session(request) as session:
            broker = _broker(request, session)
            settings = session.admin.broker_config(broker.address)
        if key not in settings:
            raise HTTPException(404, f"{broker.name} has no setting {key}.")
        return request.page("cluster/broker_setting.html.j2", broker=broker, key=key, value=settings[key])

    def change_setting(self, request: PageRequest) -> Response:
        """POST: change a setting, unless it differs from what the form showed. It is read back."""
        key, value, seen = request.text("key"), request.text("value"), "".join(request.texts("seen")[-1:])
        if any(end in value for end in "\r\n"):
            raise HTTPException(400, "value: it has a line end")
        with self._source.session(request) as session:
            broker = _broker(request, session)
            before = session.admin.broker_config(broker.address).get(key)
            page = url("/brokers", broker.name, id=broker.broker_id)
            if before is None or before.strip() != seen.strip():
                text = f"{key} of {broker.name} is {before!r} now. Nothing was changed: look at it, and try again."
                return conflict(request, text, f"Broker {broker.name}", page)
            session.admin.update_broker_config({key: value}, broker=broker.address)
            now = session.admin.broker_config(broker.address).get(key)
        is_set = now is not None and now.strip().lower() == value.lower()
        text = f"{key} of {broker.name} is {now} now; it was {before}."
        if not is_set:
            text = f"{key} of {broker.name} is {now}, not {value}: the broker refuses it, or it was changed again."
        return request.done(page, text, is_problem=not is_set)

    def tasks(self, request: PageRequest) -> Response:
        """What the broker can be told to do."""
        with self._source.session(request) as session:
            return request.page("cluster/broker_tasks.html.j2", broker=_broker(request, session), tasks=TASKS)

    def run_task(self, request: PageRequest) -> Response:
        """POST: tell the broker to do it."""
        task = request.text("task")
        if task not in TASKS:
            raise HTTPException(400, f"task: {task!r} is none of {', '.join(TASKS)}")
        with self._source.session(request) as session:
            broker = _broker(request, session)
            text = _result_text(session, broker, task)
        return request.done(url("/brokers", broker.name, id=broker.broker_id), text)


def _broker(request: PageRequest, session: ClusterSession) -> Broker:
    return session.broker(request.text("broker"), request.number("id", 0))


def _result_text(session: ClusterSession, broker: Broker, task: str) -> str:
    """Tell the broker (or the name servers) to do a task, and return what was done."""
    admin = session.admin
    if task in ("wipe", "add"):
        changed = (admin.wipe_write_perm if task == "wipe" else admin.add_write_perm)(broker.name)
        counts = ", ".join(f"{count:,} topics at {server}" for server, count in sorted(changed.items()))
        return f"{TASKS[task][0]}: {broker.name} was changed for {counts}."
    calls = {
        "expired-logs": admin.delete_expired_commit_log,
        "expired-queues": admin.clean_expired_consume_queue,
        "unused-topics": admin.clean_unused_topic,
    }
    calls[task](broker=broker.address)
    return f"{TASKS[task][0]}: {broker.name} has done it."
