"""Our codes, headers and bodies against the Java classes, by reflection: no field is missing or misnamed."""

import importlib
import json
import pkgutil
from typing import Any

import msgspec
import pytest

from gantrymq.remoting import bodies, codes, headers
from gantrymq.remoting.body import Body, decode_body
from gantrymq.remoting.header import CommandHeader

from .java import NEW_RELEASE, OLD_RELEASE, Line, release, run_java

# RocketMQ's classes that no broker, client or tool sends as the JSON of a body, or only to a part that is not ours:
# a controller (which replicates by Raft), lite topics and POP's own acknowledgements.
NAMES_IN_ROCKETMQ = {"ClientConnection": "Connection"}  # ours has a Connection of sockets
NOT_OURS = set(
    "AclInfo BatchAck BatchAckMessageRequestBody BrokerReplicasInfo BrokerSyncInfo ElectMasterResponseBody EpochEntry "
    "EpochEntryCache GetBrokerLiteInfoResponseBody GetLiteClientInfoResponseBody GetLiteGroupInfoResponseBody "
    "GetLiteTopicInfoResponseBody GetParentTopicInfoResponseBody LiteSubscriptionCtlRequestBody "
    "MessageRequestModeSerializeWrapper RollbackStats RoleChangeNotifyEntry SyncStateSet OffsetMovedEvent "
    "RegisterBrokerResult RemotingCommand RequestHeaderRegistry TopicQueueMappingContext TopicQueueMappingOne "
    "TopicRemappingDetailWrapper TopicQueueMappingSerializeWrapper UserInfo ConsumeByWho".split()
)
KINDS = {"String": str, "BoundaryType": str, "Integer": int, "int": int, "Long": int, "long": int, "Boolean": bool,
         "boolean": bool}  # fmt: skip
# RocketMQ says these must be there, and does without: older tools do not send them.
NOT_REQUIRED_HERE = {
    ("GetAllTopicConfigRequestHeader", "topicSeq"),
    ("GetAllSubscriptionGroupRequestHeader", "groupSeq"),
    ("EndTransactionRequestHeader", "msgId"),  # RocketMQ logs that it is missing, and ends the transaction
}
# Ours are those of 5.5.1, but for what the programs of 5.5.0 need not send.
ONLY_IN_NEW = {"DELETE_TOPIC_IN_BROKER_LIST", "DELETE_SUBSCRIPTION_GROUP_LIST"}
KNOWN_OF_HEADERS = {
    OLD_RELEASE: [
        "NotificationRequestHeader: field clientId on one side only",
        "NotificationRequestHeader: field isLiteConsumer on one side only",
    ],
    NEW_RELEASE: [
        "GetLiteClientInfoRequestHeader: group is required",
        "GetLiteClientInfoRequestHeader: parentTopic is required",
        "GetLiteTopicInfoRequestHeader: parentTopic is required",
    ],
}
# The slaves whose connection our broker has closed, with the reason: RocketMQ has no such list.
CLOSED_SLAVES = "HARuntimeInfo: closedConnectionInfo on one side only"
KNOWN_OF_BODIES = {
    OLD_RELEASE: [CLOSED_SLAVES],
    # It is for the answers of brokers of 5.5.0.
    NEW_RELEASE: ["ConsumerOffsetSerializeWrapper: pullOffsetTable on one side only", CLOSED_SLAVES],
}
CALLERS_TIME = "invokeTime"  # RocketMQ's default is the time of the call; ours is 0 and the caller's to set


@pytest.fixture(scope="module")
def lines() -> list[Line]:
    return run_java("protocol", None)


def classes(package: Any, root: type) -> dict[str, Any]:
    """Every class under a package that derives from ``root``, by its name in RocketMQ."""
    names = [f"{package.__name__}.{one.name}" for one in pkgutil.iter_modules(package.__path__)]
    modules = [importlib.import_module(name) for name in names]
    found = [value for module in modules for value in vars(module).values()]
    kinds = [value for value in found if isinstance(value, type) and issubclass(value, root)]
    return {NAMES_IN_ROCKETMQ.get(kind.__name__, kind.__name__): kind for kind in kinds}


@pytest.mark.parametrize("name", ["RequestCode", "ResponseCode", "LanguageCode"])
def test_request_and_response_codes_equal_those_of_java(lines: list[Line], name: str) -> None:
    [java] = [line["values"] for line in lines if line["kind"] == "codes" and line["name"] == name]
    ours = {key: int(code) for key, code in getattr(codes, name).__members__.items()}
    only_in_new = ONLY_IN_NEW if release() == OLD_RELEASE else set()
    assert {key: code for key, code in ours.items() if key not in only_in_new} == java


def test_version_numbers_equal_those_of_java(lines: list[Line]) -> None:
    [java] = [line["values"] for line in lines if line["name"] == "MQVersion"]
    ours = (codes.VERSION_5_5_1, codes.VERSION_5_5_0, codes.VERSION_4_9_4)
    assert (java["V5_5_1"], java["V5_5_0"], java["V4_9_4"]) == ours


def test_header_fields_equal_those_of_java(lines: list[Line]) -> None:
    ours = classes(headers, CommandHeader)
    java = {line["name"]: line for line in lines if line["kind"] == "header"}
    names = set(ours) - {"CommandHeader", "RpcHeader", "TopicHeader"}
    assert names <= set(java)
    findings = [f"{name}: {one}" for name in sorted(names) for one in differences(java[name], ours[name])]
    assert sorted(findings) == KNOWN_OF_HEADERS[release()]


def differences(java: Line, header: type[CommandHeader]) -> list[str]:
    """What is not the same between a header class of ours and Java's."""
    name = java["name"]
    fields = {field.encode_name: field for field in msgspec.structs.fields(header)}
    theirs = {field["name"]: field for field in java["fields"]}
    found = [f"field {one} on one side only" for one in sorted(set(fields) ^ set(theirs))]
    if java.get("code") is not None and int(header.code) != java["code"]:  # type: ignore[attr-defined]
        found.append(f"has the code {java['code']}")
    for one in set(fields) & set(theirs):
        field, known = fields[one], theirs[one]
        initial = known.get("initial")
        required = known["notNull"] and initial is None and (name, one) not in NOT_REQUIRED_HERE
        if required != field.required:
            found.append(f"{one} is {'' if required else 'not '}required")
        if KINDS[known["type"]] is not kind(field.type):
            found.append(f"{one} is a {known['type']}")
        if limit(field.type) != {"Integer": 31, "int": 31, "Long": 63, "long": 63}.get(known["type"]):
            found.append(f"{one} has the range of {known['type']}")
        default = json.dumps(field.default) if field.default in (True, False) else str(field.default)
        if initial is not None and one != CALLERS_TIME and initial != default:
            found.append(f"{one} is {initial!r} unless told")
    return found


def kind(annotation: Any) -> type:
    """The Python type within ``Annotated`` and ``| None``."""
    text = str(annotation)
    return bool if "bool" in text else (int if "int" in text else str)


def limit(annotation: Any) -> int | None:
    """How many bits beside its sign a number has."""
    text = str(annotation)
    return 31 if str((1 << 31) - 1) in text else (63 if str((1 << 63) - 1) in text else None)


def test_body_fields_equal_those_of_java(lines: list[Line]) -> None:
    ours = classes(bodies, Body)
    findings = []
    java = {line["name"]: line for line in lines if line["kind"] == "body" and line.get("json")}
    for name, line in java.items():
        if name in NOT_OURS or not line["fields"]:
            continue
        if name not in ours:
            findings.append(f"{name} is missing")
            continue
        fields = {field.encode_name: field for field in msgspec.structs.fields(ours[name])}
        # What fastjson writes of a QueueTimeSpan beside its fields are the same times as texts.
        theirs = {key for key in json.loads(line["json"]) if not key.endswith("TimeStampStr")}
        findings += [f"{name}: {one} on one side only" for one in sorted(set(fields) ^ theirs)]
    assert findings == KNOWN_OF_BODIES[release()]


def test_fresh_bodies_have_the_same_defaults(lines: list[Line]) -> None:
    ours = classes(bodies, Body)
    times = {"timestamp", "subVersion"}
    findings = []
    for line in lines:
        if line["kind"] != "body" or line["name"] not in ours or not line.get("json"):
            continue
        fresh = json.loads(line["json"])
        given = {key: value for key, value in fresh.items() if value is not None and key not in times}
        body = json.loads(decode_body(ours[line["name"]], required(ours[line["name"]])).encode())
        findings += [
            f"{line['name']}.{key}: {value!r} there, {body.get(key)!r} here"
            for key, value in given.items()
            if not key.endswith("TimeStampStr") and not isinstance(value, dict) and body.get(key) != value
        ]
    assert findings == []


def required(body: type[Body]) -> bytes:
    """JSON with what a body cannot be without."""
    return json.dumps({one.encode_name: "x" for one in msgspec.structs.fields(body) if one.required}).encode()
