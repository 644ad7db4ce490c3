"""The message classes of ``apache.rocketmq.v2``, from a descriptor pool of our own.

The obvious way is to generate Python modules from the .proto files. They register in protobuf's default pool, and a
process that also imports RocketMQ's Python client then fails: the same symbols are registered twice. So the classes are
made here, from ``rocketmq.pb``, in a pool that no other library uses. ``scripts/compile_protos.py`` writes that file.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

PACKAGE = "apache.rocketmq.v2"
SERVICE = f"{PACKAGE}.MessagingService"
_SET = "rocketmq.pb"
EARLIEST_MS, LATEST_MS = -62_135_596_800_000, 253_402_300_799_999  # of valid Timestamps: the years 1 to 9999


def _pool() -> DescriptorPool:
    pool = DescriptorPool()
    for file in FileDescriptorSet.FromString((files(__package__) / _SET).read_bytes()).file:
        pool.Add(file)
    return pool


POOL = _pool()


def _message(name: str) -> Any:
    return GetMessageClass(POOL.FindMessageTypeByName(f"{PACKAGE}.{name}"))


AckMessageRequest = _message("AckMessageRequest")
AckMessageResponse = _message("AckMessageResponse")
AckMessageResultEntry = _message("AckMessageResultEntry")
Assignment = _message("Assignment")
Broker = _message("Broker")
ChangeInvisibleDurationRequest = _message("ChangeInvisibleDurationRequest")
ChangeInvisibleDurationResponse = _message("ChangeInvisibleDurationResponse")
EndTransactionRequest = _message("EndTransactionRequest")
EndTransactionResponse = _message("EndTransactionResponse")
Endpoints = _message("Endpoints")
ForwardMessageToDeadLetterQueueRequest = _message("ForwardMessageToDeadLetterQueueRequest")
ForwardMessageToDeadLetterQueueResponse = _message("ForwardMessageToDeadLetterQueueResponse")
HeartbeatRequest = _message("HeartbeatRequest")
HeartbeatResponse = _message("HeartbeatResponse")
Message = _message("Message")
MessageQueue = _message("MessageQueue")
NotifyClientTerminationRequest = _message("NotifyClientTerminationRequest")
NotifyClientTerminationResponse = _message("NotifyClientTerminationResponse")
QueryAssignmentRequest = _message("QueryAssignmentRequest")
QueryAssignmentResponse = _message("QueryAssignmentResponse")
QueryRouteRequest = _message("QueryRouteRequest")
QueryRouteResponse = _message("QueryRouteResponse")
RecallMessageRequest = _message("RecallMessageRequest")
RecallMessageResponse = _message("RecallMessageResponse")
ReceiveMessageRequest = _message("ReceiveMessageRequest")
ReceiveMessageResponse = _message("ReceiveMessageResponse")
SendMessageRequest = _message("SendMessageRequest")
SendMessageResponse = _message("SendMessageResponse")
SendResultEntry = _message("SendResultEntry")
Settings = _message("Settings")
Status = _message("Status")
TelemetryCommand = _message("TelemetryCommand")


def set_ms(field: Any, milliseconds: int) -> None:
    """Set a Timestamp or a Duration."""
    field.seconds, rest_ms = divmod(milliseconds, 1000)
    field.nanos = rest_ms * 1_000_000


def to_ms(field: Any) -> int:
    """A Timestamp or a Duration in milliseconds, rounded toward zero for positive values."""
    return int(field.seconds) * 1000 + int(field.nanos) // 1_000_000


def types_of(call: str) -> tuple[Any, Any]:
    """The classes of a call's request and response."""
    method = POOL.FindServiceByName(SERVICE).methods_by_name[call]
    return GetMessageClass(method.input_type), GetMessageClass(method.output_type)
