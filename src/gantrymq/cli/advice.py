"""The next step for each error of a cluster: one line with the error and the remedy.

Source: ResponseCode; RocketMQ's remarks, which are cut at their first line.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gantrymq.errors import (
    ConfigError,
    GantrymqError,
    MQBrokerError,
    MQClientError,
    NoRouteError,
    RemotingConnectError,
    RemotingTimeoutError,
    SendFailedError,
)
from gantrymq.model.system_names import RETRY_PREFIX

_NO_ROUTE_OF = "no route of topic "
_NO_WRITE_TO, _NO_WRITE = "No route info of this topic: ", ": no broker that has it accepts sends"


def advised(error: GantrymqError) -> str:
    """The text of an error, with the next step where one is known."""
    match error:
        case MQBrokerError():
            return _refused(error)
        case SendFailedError(__cause__=MQBrokerError() as refused):
            return _refused(refused)
        case NoRouteError():
            return _unknown(str(error))
        case RemotingTimeoutError():
            return f"{error}; -X mqClientApiTimeout=MS waits longer"
        case RemotingConnectError() if str(error).startswith("no name server"):
            return f"{error}; is -n (NAMESRV_ADDR) right, and does the name server need --tls?"
        case RemotingConnectError():
            return f"{error}; is that broker running, and can this machine reach it?"
    return str(error)


@contextmanager
def advice() -> Iterator[None]:
    """Add the next step to the text of an error of the cluster."""
    try:
        yield
    except ConfigError:
        raise  # a usage error, whose text has the allowed values
    except GantrymqError as error:
        text = advised(error)
        raise error if text == str(error) else MQClientError(text) from error


def unreadable(topic: str) -> MQClientError:
    """The error for a topic without a queue that may be read."""
    return MQClientError(f"{topic} may not be read; {_permitted(topic)}")


def _permitted(topic: str) -> str:
    return f"`gantrymq admin topic perm '{topic}' RW` allows it, unless brokerPermission at the broker is not 6"


def _unknown(text: str) -> str:
    if text.startswith(_NO_WRITE_TO) and text.endswith(_NO_WRITE):
        return f"{text}; {_permitted(text.removeprefix(_NO_WRITE_TO).removesuffix(_NO_WRITE))}"
    if not text.startswith(_NO_ROUTE_OF):
        return text
    topic = text.removeprefix(_NO_ROUTE_OF).removesuffix(": no broker has it")
    if topic.startswith(RETRY_PREFIX):
        group = topic.removeprefix(RETRY_PREFIX)
        return f"there is no group {group} that has consumed; `gantrymq admin group list` shows the groups"
    return f"there is no topic {topic}; `gantrymq admin topic list` shows the topics"


def _refused(error: MQBrokerError) -> str:
    from gantrymq.remoting.codes import ResponseCode

    names = [code.name for code in ResponseCode if code == error.response_code]
    lines = error.remark.splitlines()
    problem = f"{error.address}: {names[0] if names else error.response_code}" + (
        f": {lines[0].strip()}" if lines else ""
    )
    step = {
        ResponseCode.NO_PERMISSION: "give --access-key and --secret-key of an account that may do this",
        ResponseCode.REQUEST_CODE_NOT_SUPPORTED: "this server does not have the feature, or is too old for it",
        ResponseCode.TOPIC_NOT_EXIST: "`gantrymq admin topic list` shows the topics",
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: "`gantrymq admin group list` shows the groups",
        ResponseCode.CONSUMER_NOT_ONLINE: "no consumer of the group is connected",
        ResponseCode.SYSTEM_BUSY: "try again in a moment",
    }
    if error.response_code == ResponseCode.NO_PERMISSION and lines and lines[0].startswith("the topic["):
        return f"{problem}; `gantrymq admin topic perm TOPIC RW` allows it"
    is_missing = "not exist" in problem and error.response_code == ResponseCode.NO_PERMISSION  # a subject of ACL 2.0
    advice = [text for code, text in step.items() if code == error.response_code and not is_missing]
    return f"{problem}; {advice[0]}" if advice else problem
