"""The status, the title and the text of the page for each kind of error."""

from __future__ import annotations

from gantrymq.errors import (
    GantrymqError,
    MQBrokerError,
    MQClientError,
    NoRouteError,
    RemotingConnectError,
    RemotingError,
    RemotingTimeoutError,
    SendFailedError,
    StoreError,
)
from gantrymq.model.system_names import RETRY_PREFIX
from gantrymq.remoting.codes import ResponseCode

_REFUSALS = {
    ResponseCode.NO_PERMISSION: (403, "The account may not do this", "Start the console with another access key."),
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: (501, "The server does not have this feature", ""),
    ResponseCode.TOPIC_NOT_EXIST: (404, "There is no such topic", ""),
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: (404, "There is no such group", ""),
    ResponseCode.CONSUMER_NOT_ONLINE: (404, "No consumer of the group is connected", ""),
    ResponseCode.INVALID_PARAMETER: (400, "The server does not accept this", ""),
    ResponseCode.SYSTEM_BUSY: (503, "The broker is busy", "Try again in a moment."),
}


def described(error: GantrymqError) -> tuple[int, str, str]:
    """The HTTP status, the title and the text of the error's page."""
    match error:
        case SendFailedError(__cause__=MQBrokerError() as refused):
            return described(refused)
        case MQBrokerError():
            for code, (status, title, step) in _REFUSALS.items():
                if error.response_code == code:
                    return status, title, f"{failure_text(error)} {step}".strip()
            return 502, "The server refused the request", failure_text(error)
        case NoRouteError():
            return 404, "Not found", failure_text(error)
        case RemotingTimeoutError() | RemotingConnectError() | RemotingError():
            return 502, "The cluster does not answer", failure_text(error)
        case StoreError():
            return 500, "The store cannot be read", failure_text(error)
        case MQClientError():
            return 404, "Not found", failure_text(error)
    return 500, "The request failed", failure_text(error)


def failure_text(error: GantrymqError) -> str:
    """An error in one line for people. A remark of a broker is cut at its first line, as it may have a Java stack."""
    if isinstance(error, SendFailedError) and isinstance(error.__cause__, MQBrokerError):
        error = error.__cause__
    if isinstance(error, MQBrokerError):
        names = [code.name for code in ResponseCode if code == error.response_code]
        first = error.remark.strip().splitlines()[:1]
        return ": ".join([error.address, *(names or [str(error.response_code)]), *first])
    text = str(error)
    prefix, suffix = "no route of topic ", ": no broker has it"
    if isinstance(error, NoRouteError) and text.startswith(prefix):
        name = text.removeprefix(prefix).removesuffix(suffix)
        if name.startswith(RETRY_PREFIX):
            return f"There is no group {name.removeprefix(RETRY_PREFIX)} that has consumed."
        return f"There is no topic {name}."
    return text
