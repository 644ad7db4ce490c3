"""Typed headers: texts on the wire, required fields, Java's parsers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from remoting_cases import TEXT

from gantrymq.errors import RemotingCommandError
from gantrymq.remoting.codes import RequestCode, SerializeType
from gantrymq.remoting.command import RemotingCommand, encode_command
from gantrymq.remoting.connection import Connection
from gantrymq.remoting.headers.offset import GetMaxOffsetRequestHeader, UpdateConsumerOffsetRequestHeader
from gantrymq.remoting.headers.send import SendMessageRequestHeaderV2

FORMS = pytest.mark.parametrize("form", list(SerializeType))
LONG = st.integers(-(1 << 63), (1 << 63) - 1)
INT = st.integers(-(1 << 31), (1 << 31) - 1)


def over_the_wire(command: RemotingCommand, form: int) -> RemotingCommand:
    command.serialize_type = form
    [received] = Connection().receive(encode_command(command))
    return received


@given(
    group=TEXT.filter(bool), topic=TEXT.filter(bool), number=INT, born=LONG, properties=TEXT.filter(bool) | st.none(),
    unit_mode=st.booleans() | st.none(), form=st.sampled_from(list(SerializeType)),
)  # fmt: skip
def test_header_round_trips(
    group: str, topic: str, number: int, born: int, properties: str | None, unit_mode: bool | None, form: int
) -> None:
    header = SendMessageRequestHeaderV2(
        producer_group=group, topic=topic, default_topic="TBW102", default_topic_queue_nums=4, queue_id=number,
        sys_flag=0, born_timestamp=born, flag=number, properties=properties, unit_mode=unit_mode,
    )  # fmt: skip
    received = over_the_wire(RemotingCommand.request(header), form)
    assert received.code == RequestCode.SEND_MESSAGE_V2
    assert received.read(SendMessageRequestHeaderV2) == header
    assert received.ext_fields == header.to_ext_fields()
    assert received.read(SendMessageRequestHeaderV2) == header  # once more, out of the texts


@FORMS
def test_missing_header_field_is_named_as_by_rocketmq(form: int) -> None:
    received = over_the_wire(RemotingCommand(RequestCode.GET_MAX_OFFSET, ext_fields={"topic": "T"}), form)
    with pytest.raises(RemotingCommandError, match=r"^the custom field <queueId> is null$"):
        received.read(GetMaxOffsetRequestHeader)


@FORMS
def test_header_without_fields_names_missing_field(form: int) -> None:
    received = over_the_wire(RemotingCommand(RequestCode.GET_MAX_OFFSET), form)
    with pytest.raises(RemotingCommandError, match=r"^the custom field <topic> is null$"):
        received.read(GetMaxOffsetRequestHeader)


@FORMS
@pytest.mark.parametrize(("text", "number"), [("7", 7), ("+7", 7), ("-0", 0), ("007", 7), ("2147483647", 2147483647)])
def test_numbers_are_parsed_like_java(form: int, text: str, number: int) -> None:
    fields = {"topic": "T", "queueId": text, "committed": "FALSE"}
    header = over_the_wire(RemotingCommand(30, ext_fields=fields), form).read(GetMaxOffsetRequestHeader)
    assert (header.queue_id, header.committed) == (number, False)


@FORMS
@pytest.mark.parametrize("text", ["x", " 7", "7 ", "2147483648", "-2147483649", "1_0", "0x7", "9" * 5000, "--1", "+"])
def test_invalid_number_is_named_in_error(form: int, text: str) -> None:
    received = over_the_wire(RemotingCommand(30, ext_fields={"topic": "T", "queueId": text}), form)
    with pytest.raises(RemotingCommandError, match=r"^the custom field <queueId> is not a valid number"):
        received.read(GetMaxOffsetRequestHeader)


@FORMS
def test_long_field_accepts_63_bits(form: int) -> None:
    fields = {"consumerGroup": "g", "topic": "T", "queueId": "1", "commitOffset": str((1 << 63) - 1)}
    received = over_the_wire(RemotingCommand(15, ext_fields=fields), form)
    assert received.read(UpdateConsumerOffsetRequestHeader).commit_offset == (1 << 63) - 1
    fields["commitOffset"] = str(1 << 63)
    with pytest.raises(RemotingCommandError, match="commitOffset"):
        over_the_wire(RemotingCommand(15, ext_fields=fields), form).read(UpdateConsumerOffsetRequestHeader)


def test_unknown_fields_are_ignored_and_topic_null_is_accepted() -> None:
    fields = {"topic": "null", "queueId": "0", "AccessKey": "me"}
    assert over_the_wire(RemotingCommand(30, ext_fields=fields), 0).read(GetMaxOffsetRequestHeader).topic == "null"


def test_response_uses_encoding_of_request() -> None:
    request = RemotingCommand(30, opaque=9, serialize_type=SerializeType.ROCKETMQ)
    response = request.response(0, "fine")
    assert (response.opaque, response.serialize_type, response.is_response) == (9, SerializeType.ROCKETMQ, True)


def test_typed_header_overrides_ext_fields_of_same_name() -> None:
    command = RemotingCommand.request(GetMaxOffsetRequestHeader(topic="T", queue_id=1))
    command.ext_fields["queueId"] = "9"
    command.ext_fields["more"] = "x"
    assert command.fields()["queueId"] == "1"
    assert command.fields()["more"] == "x"
