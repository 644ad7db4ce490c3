"""Results of calls: the status in every answer, and the error that becomes one.

A broker's response code has a status code of its own only where RocketMQ's proxy has one; others are
INTERNAL_SERVER_ERROR. NO_PERMISSION becomes FORBIDDEN here, which the proxy does not do.

Source: ResponseBuilder, GrpcProxyException.
"""

from __future__ import annotations

import re
from typing import Any

from gantrymq.errors import GantrymqError, MQBrokerError, RemotingTimeoutError
from gantrymq.grpc.protocol.codes import Code
from gantrymq.grpc.protocol.messages import Status
from gantrymq.logs import get_logger
from gantrymq.remoting.codes import ResponseCode
from gantrymq.remoting.command import RemotingCommand

_CODES = {
    int(ResponseCode.SUCCESS): Code.OK,
    int(ResponseCode.SYSTEM_BUSY): Code.TOO_MANY_REQUESTS,
    int(ResponseCode.REQUEST_CODE_NOT_SUPPORTED): Code.NOT_IMPLEMENTED,
    int(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST): Code.CONSUMER_GROUP_NOT_FOUND,
    int(ResponseCode.TOPIC_NOT_EXIST): Code.TOPIC_NOT_FOUND,
    int(ResponseCode.NO_PERMISSION): Code.FORBIDDEN,
}
# What users and policies refuse is UNAUTHORIZED, as in RocketMQ's proxy, which refuses it itself.
_BY_USERS = re.compile(
    r"User:.* (?:has no permission to access .*|is not found\.|is disabled\.)|username cannot be null\.|"
    r"check signature failed\.|parse authorization context error\.|Authorization failed\. .*",
    re.DOTALL,
)

log = get_logger("gantrymq.grpc")


class CallError(GantrymqError):
    """A call is answered with this status instead of a result."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


def status(code: Code, message: str | None = None) -> Any:
    """A Status; without a message it has the code's name."""
    return Status(code=code, message=code.name if message is None else message)


def status_of_response(response: RemotingCommand) -> Any:
    """The Status for a broker's response."""
    return status(code_of(response.code, response.remark), _text_of(response))


def code_of(response_code: int, remark: str | None) -> Code:
    """The status code for a broker's response code and its remark."""
    if response_code == ResponseCode.NO_PERMISSION and _BY_USERS.fullmatch(remark or ""):
        return Code.UNAUTHORIZED
    return _CODES.get(response_code, Code.INTERNAL_SERVER_ERROR)


def _text_of(response: RemotingCommand) -> str:
    return str(response.code) if response.remark is None else response.remark


def refused(response: RemotingCommand) -> CallError:
    """The error for a response that is not a success."""
    return CallError(code_of(response.code, response.remark), _text_of(response))


def status_of_error(error: BaseException) -> Any:
    """The Status for an error. An unexpected one is logged."""
    if isinstance(error, CallError):
        return status(error.code, error.message)
    if isinstance(error, MQBrokerError):
        return status(code_of(error.response_code, error.remark), error.remark)
    if isinstance(error, RemotingTimeoutError):
        return status(Code.PROXY_TIMEOUT, str(error))
    if not isinstance(error, GantrymqError):
        log.exception("a gRPC call failed", exc_info=error)
    return status(Code.INTERNAL_SERVER_ERROR, str(error) or type(error).__name__)
