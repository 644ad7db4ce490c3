"""Frames of ours read by the real RemotingCommand, and what it writes read by us, in both forms."""

import random
from pathlib import Path

from gantrymq.remoting.codes import LanguageCode, SerializeType
from gantrymq.remoting.command import RemotingCommand, encode_command
from gantrymq.remoting.connection import Connection
from gantrymq.remoting.headers.send import SendMessageRequestHeaderV2

from .java import run_java

TEXTS = ["x", "TopicTest", "ü€", "主题", "😀", 'a"b\\c', "tab\tnul\x00\x01\x02", "{0:1}", " ", "x" * 5000]


def command(rng: random.Random, form: int) -> RemotingCommand:
    """A command that both forms can carry as it is."""
    fields = {rng.choice(TEXTS) + str(number): rng.choice(TEXTS) for number in range(rng.randint(0, 6))}
    header = None
    if rng.random() < 0.5:
        header = SendMessageRequestHeaderV2(
            producer_group=rng.choice(TEXTS), topic=rng.choice(TEXTS), default_topic="TBW102",
            default_topic_queue_nums=4, queue_id=rng.randint(-(1 << 31), (1 << 31) - 1), sys_flag=0,
            born_timestamp=rng.randint(-(1 << 63), (1 << 63) - 1), flag=1, batch=rng.random() < 0.5,
        )  # fmt: skip
    return RemotingCommand(
        rng.randint(-(1 << 15), (1 << 15) - 1),
        header=header,
        ext_fields=fields,
        body=rng.randbytes(rng.choice([0, 1, 1000])),
        remark=rng.choice([None, *TEXTS]),
        flag=rng.randint(0, 3),
        opaque=rng.randint(-(1 << 31), (1 << 31) - 1),
        language=int(rng.choice(list(LanguageCode))),
        version=rng.randint(0, 1000),
        serialize_type=form,
    )


def test_each_side_reads_frames_of_other(rng: random.Random, tmp_path: Path) -> None:
    sent = [command(rng, form) for form in SerializeType for _ in range(200)]
    file = tmp_path / "frames"
    file.write_text("".join(encode_command(one).hex() + "\n" for one in sent))
    lines = run_java("frames", None, str(file))
    assert len(lines) == len(sent)
    for ours, theirs in zip(sent, lines, strict=True):
        assert theirs["extFields"] == ours.fields()
        assert bytes.fromhex(theirs["body"]) == ours.body
        assert (theirs["code"], theirs["version"], theirs["opaque"]) == (ours.code, ours.version, ours.opaque)
        assert (theirs["flag"], theirs.get("remark")) == (ours.flag, ours.remark)
        assert LanguageCode[theirs["language"]] == ours.language
        assert theirs["form"] == SerializeType(ours.serialize_type).name
        for form in SerializeType:
            [back] = Connection().receive(bytes.fromhex(theirs[form.name]))
            assert (back, back.serialize_type) == (ours, form)
