"""JSON as fastjson writes it: integer keys without quotes, and strings that look like them."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantrymq.model import fastjson

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{0:32,1:33}", {"0": 32, "1": 33}),
        ("{-1:0}", {"-1": 0}),
        ("{ 0 : 32 ,\n\t1 :33}", {"0": 32, "1": 33}),
        ('{"offsetTable":{"orders@billing":{0:32,1:32}}}', {"offsetTable": {"orders@billing": {"0": 32, "1": 32}}}),
        ('{0:[1,2],1:{2:"x"}}', {"0": [1, 2], "1": {"2": "x"}}),
        ('{"0":32}', {"0": 32}),
        ("[1,2]", [1, 2]),
    ],
)
def test_integer_keys_need_no_quotes(text: str, value: Any) -> None:
    assert fastjson.loads(text) == value


@pytest.mark.parametrize(
    "text",
    [
        '\ufeff{"a": {"b": [1, 2]}}',
        '{"a": {"b": [1, 2,],},}',
        '{"a": {"b": [1, 2, // the last\n ]}, /* x, } */ }',
        '// first\n{"a": /* , */ {"b": [1, 2]}}\n// last',
        "{'a': {'b': [1, 2]}}",
        '/* " */{"a": {"b": [1, 2]}}',
    ],
)
def test_handwritten_json_is_read_as_fastjson2_reads_it(text: str) -> None:
    """Tried with RocketMQ 5.5.0's TopicConfigSerializeWrapper."""
    assert fastjson.loads_edited(text) == {"a": {"b": [1, 2]}}


@pytest.mark.parametrize("text", ["{# x\n}", '{"a":1', '{"a":1}x', '{"a":1}{}', "{a:1}", '{"a":,1}', '{"a":1;}', ""])
def test_text_refused_by_fastjson2_raises_with_position(text: str) -> None:
    with pytest.raises(ValueError, match=r"line \d+ column \d+"):
        fastjson.loads_edited(text)


def test_comment_marks_in_strings_are_kept() -> None:
    value = {"http://x,}": "/* no */ // no, ]", "it's": "'", 'a"b': '\\"'}
    assert fastjson.loads_edited(json.dumps(value) + "// end") == value
    assert fastjson.loads_edited("""{'say "x"': 'it\\'s',}""") == {'say "x"': "it's"}


@pytest.mark.parametrize("text", ["{0:32}", ",1:2", 'a "{0:1}" b', "\\", '\\"{3:4', "{0:32,1:33}\n"])
def test_string_resembling_key_is_kept(text: str) -> None:
    assert fastjson.loads(json.dumps({text: text})) == {text: text}


@given(VALUES)
def test_standard_json_is_read_unchanged(value: Any) -> None:
    assert fastjson.loads(json.dumps(value)) == value
    assert fastjson.loads(json.dumps(value, ensure_ascii=False)) == value


@given(VALUES)
def test_written_text_is_standard_json_and_is_read_back(value: Any) -> None:
    text = fastjson.dumps(value).decode()
    assert json.loads(text) == fastjson.loads(text) == value


def test_json_is_indented_with_tabs() -> None:
    text = fastjson.dumps({"offsetTable": {"1": 3, "主题": 4}}).decode()
    assert text == '{\n\t"offsetTable":{\n\t\t"1":3,\n\t\t"主题":4\n\t}\n}'


@pytest.mark.parametrize("text", ["", "{", "{0:}", "{0:32", '{"a":1', "{1.5:2}", "{a:1}", "\0\0\0\0"])
def test_invalid_json_raises_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        fastjson.loads(text)


@pytest.mark.parametrize("opening", ["[", '{"a":', "{0:"])
def test_endless_nesting_raises_value_error(opening: str) -> None:
    with pytest.raises(ValueError, match="nested too deeply"):
        fastjson.loads(opening * 100_000)
