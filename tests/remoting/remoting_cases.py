"""Commands drawn at random, for the tests of this folder."""

from hypothesis import strategies as st

from gantrymq.remoting.codes import LanguageCode, SerializeType
from gantrymq.remoting.command import RemotingCommand

TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=40)
NUMBER = st.integers(-(1 << 31), (1 << 31) - 1)


@st.composite
def commands(draw: st.DrawFn) -> RemotingCommand:
    """A command that both forms can carry as it is: no empty values, a code of 16 bits."""
    return RemotingCommand(
        draw(st.integers(-(1 << 15), (1 << 15) - 1)),
        language=draw(st.sampled_from([int(code) for code in LanguageCode])),
        version=draw(st.integers(0, 0x7FFF)),
        opaque=draw(NUMBER),
        flag=draw(NUMBER),
        remark=draw(st.none() | TEXT.filter(bool)),
        ext_fields=draw(st.dictionaries(TEXT, TEXT.filter(bool), max_size=8)),
        body=draw(st.binary(max_size=300)),
        serialize_type=draw(st.sampled_from([int(one) for one in SerializeType])),
    )
