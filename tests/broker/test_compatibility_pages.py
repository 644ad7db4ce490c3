"""docs/compatibility: every request code and attribute of RocketMQ 5.5.1 is there, and is answered as the page says."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from broker_cases import BrokerCase, StartBroker, StartNamesrv
from structlog.testing import capture_logs

from gantrymq.remoting.bodies.group import SubscriptionGroupConfig
from gantrymq.remoting.codes import RequestCode, ResponseCode
from gantrymq.remoting.command import RemotingCommand
from gantrymq.remoting.headers.consumer import GetSubscriptionGroupConfigRequestHeader
from gantrymq.remoting.headers.topic import CreateTopicRequestHeader, GetTopicConfigRequestHeader

pytestmark = pytest.mark.asyncio
ROOT = Path(__file__).parents[2]
NAMES: dict[str, Any] = json.loads((ROOT / "tests/compatibility/rocketmq-5.5.1.json").read_text())
_HERE = re.compile(r"(works|accepted without effect|refused: ([A-Z_]+)(?: `([^`]*)`)?)(?:[:;,. ]|$)")
_NUMBERED = re.compile(r"\b([A-Z][A-Z0-9_]+) (\d+)\b")
_CLIENT_CODE = re.compile(r"\.register\([^()]*RequestCode\.(\w+)")


class Here(NamedTuple):
    """What a row says: the kind of answer, and the code and remark of a refusal. "…" in the remark is any text."""

    kind: str
    code: int
    remark: str | None

    def wrong(self, answer: RemotingCommand, refusals: set[tuple[int, str | None]]) -> str | None:
        """Why an answer is not what the row says, or None. ``refusals`` are those of all rows."""
        said = f"the answer is {ResponseCode(answer.code).name} {answer.remark!r}"
        if self.kind == "refused":
            pattern = ".*".join(map(re.escape, (self.remark or "…").split("…")))
            is_same = answer.code == self.code and re.fullmatch(pattern, (answer.remark or "").strip())
            return None if is_same else said
        if self.kind == "accepted without effect":
            return None if answer.code == ResponseCode.SUCCESS else said
        is_refused = any(
            Here("refused", code, remark).wrong(answer, refusals) is None
            for code, remark in refusals
            if remark is not None or code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        )
        return said if is_refused else None


def rows(page: str) -> Iterator[list[str]]:
    """The cells of the rows of a page's tables."""
    for line in (ROOT / "docs" / "compatibility" / page).read_text().splitlines():
        if line.startswith("|") and not line.startswith(("|---", "| code |", "| attribute |")):
            yield [cell.strip() for cell in line.strip("|").split(" | ")]


def here(cell: str) -> Here:
    found = _HERE.match(cell)
    assert found is not None, f"no status: {cell}"
    kind = "refused" if found[2] else found[1]
    return Here(kind, int(ResponseCode[found[2]]) if found[2] else 0, found[3])


def codes() -> Iterator[tuple[str, int, str, Here]]:
    """The name, number, program and status of each code: those of the table, and those of the lists.

    An item of a list is "**program**, status: NAME NUMBER, …", or "NAME NUMBER, **program**, status: difference".
    """
    for name, number, asked, said in rows("request-codes.md"):
        yield name, int(number), asked, here(said)
    text = (ROOT / "docs" / "compatibility" / "request-codes.md").read_text().partition("\n## ")[2]
    for item in re.findall(r"^- (.*\n(?:  .*\n)*)", text, re.MULTILINE):
        before, asked, after = " ".join(item.split()).split("**")
        status = after.removeprefix(", ")
        for name, number in _NUMBERED.findall(before or after):
            yield name, int(number), asked, here(status)


CODES = list(codes())
REFUSALS = {(said.code, said.remark) for _, _, _, said in CODES if said.kind == "refused"}
ATTRIBUTES = [
    (name.strip("`"), value, here(said))
    for name, values, _, said in rows("topic-attributes.md")
    for value in re.findall("`([^`]+)`", values)
]


async def test_every_request_code_has_its_rows() -> None:
    assert {name: number for name, number, _, _ in CODES} == NAMES["requestCodes"]
    assert {name: int(code) for name, code in RequestCode.__members__.items()} == NAMES["requestCodes"]
    asked = {(name, asked) for name, _, asked, _ in CODES}
    assert len(asked) == len(CODES)
    assert {who for _, who in asked} == {
        "broker",
        "name server",
        "client",
        "controller",
        "container of brokers",
        "none",
    }


async def test_every_code_is_answered_as_its_row_says(start_namesrv: StartNamesrv, start_broker: StartBroker) -> None:
    """With a request that has no fields and no body: a processor that works asks for them."""
    namesrv, broker = await start_namesrv(), await start_broker()
    addresses = {"broker": broker.server.address, "name server": namesrv.address}
    off = Here("refused", int(ResponseCode.REQUEST_CODE_NOT_SUPPORTED), "request type … not supported")
    wrong = []
    for code in RequestCode:
        for server, address in addresses.items():
            [said] = [row for name, _, asked, row in CODES if (name, asked) == (code.name, server)] or [off]
            answer = await broker.client.invoke(address, RemotingCommand.request(int(code), b""), 10_000)
            reason = said.wrong(answer, REFUSALS)
            if reason is not None:
                wrong.append(f"{code.name} at the {server}: the page says {said.kind}, {reason}")
    assert not wrong, "\n".join(wrong)


async def test_own_clients_answer_codes_as_their_rows_say() -> None:
    source = "\n".join(path.read_text() for path in (ROOT / "src/gantrymq/client").rglob("*.py"))
    assert set(_CLIENT_CODE.findall(source)) == {
        name for name, _, asked, said in CODES if asked == "client" and said.kind == "works"
    }
    others = {said for _, _, asked, said in CODES if asked not in ("broker", "name server", "client")}
    assert others == {Here("refused", int(ResponseCode.REQUEST_CODE_NOT_SUPPORTED), None)}


async def test_every_attribute_has_a_row() -> None:
    known = set(NAMES["topicAttributes"]) | set(NAMES["groupAttributes"])
    assert {name for name, _, _ in ATTRIBUTES} == known


async def test_every_attribute_is_answered_as_its_row_says(broker: BrokerCase) -> None:
    wrong = []
    for number, (attribute, value, said) in enumerate(ATTRIBUTES):
        name = f"name-{number}"
        is_of_topic = attribute in NAMES["topicAttributes"]
        answer = await (set_topic if is_of_topic else set_group)(broker, name, f"+{attribute}", value)
        group = GetSubscriptionGroupConfigRequestHeader(group=name)
        shown = GetTopicConfigRequestHeader(topic=name) if is_of_topic else group
        kept = (await broker.ask(shown)).body
        is_kept = bool(kept) and json.loads(kept)["attributes"].get(attribute) == value
        reason = said.wrong(answer, set())
        if reason is not None or is_kept != (said.kind == "works") or is_kept != (answer.code == ResponseCode.SUCCESS):
            wrong.append(f"{attribute}={value}: the page says {said.kind}, {reason or answer}, kept: {is_kept}")
    assert not wrong, "\n".join(wrong)


async def set_topic(broker: BrokerCase, name: str, attribute: str, value: str) -> RemotingCommand:
    header = CreateTopicRequestHeader(
        topic=name, default_topic="TBW102", read_queue_nums=1, write_queue_nums=1, perm=6,
        topic_filter_type="SINGLE_TAG", order=False, attributes=f"{attribute}={value}",
    )  # fmt: skip
    return await broker.ask(header)


async def set_group(broker: BrokerCase, name: str, attribute: str, value: str) -> RemotingCommand:
    body = SubscriptionGroupConfig(group_name=name, attributes={attribute: value})
    return await broker.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body)


async def test_update_to_unsupported_value_returns_error_of_rocketmq(broker: BrokerCase) -> None:
    assert (await set_topic(broker, "T", "+message.type", "FIFO")).code == ResponseCode.SUCCESS
    answer = await set_topic(broker, "T", "+cleanup.policy", "COMPACTION")
    unchangeable = "attempt to update an unchangeable attribute. key: cleanup.policy"
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, unchangeable)
    answer = await set_topic(broker, "T", "+message.type", "LITE")
    assert (answer.code, answer.remark) == (ResponseCode.INVALID_PARAMETER, "message.type=LITE is not supported.")
    topic = json.loads((await broker.ask(GetTopicConfigRequestHeader(topic="T"))).body)
    assert topic["attributes"] == {"message.type": "FIFO"}


async def test_attributes_without_effect_in_rocketmqs_files_cause_warning(tmp_path: Path) -> None:
    config = tmp_path / "store" / "config"
    config.mkdir(parents=True)
    topics = {f"T{i}": {"topicName": f"T{i}", "attributes": {"cleanup.policy": "COMPACTION"}} for i in range(4)}
    topics["U"] = {"topicName": "U", "attributes": {"message.type": "FIFO"}}
    (config / "topics.json").write_text(json.dumps({"topicConfigTable": topics}))
    groups = {"G": {"groupName": "G", "attributes": {"lite.bind.topic": "T0"}}}
    (config / "subscriptionGroup.json").write_text(json.dumps({"subscriptionGroupTable": groups}))
    with capture_logs() as lines:
        async with BrokerCase(tmp_path / "store", accept_without_effect="cleanup.policy"):
            pass
    said = [(line["event"], line["attribute"], line["count"], line["of"]) for line in lines if "attribute" in line]
    assert said == [
        ("an attribute of topics has no effect here", "cleanup.policy=COMPACTION", 4, "T0, T1, T2, …"),
        ("an attribute of groups has no effect here", "lite.bind.topic=T0", 1, "G"),
    ]
