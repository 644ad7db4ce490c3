"""Java's handling of texts that RocketMQ relies on: hashCode over UTF-16 units, lenient UTF-8, numbers."""

import re

INT_MAX, LONG_MAX = 0x7FFFFFFF, 0x7FFFFFFF_FFFFFFFF
_MAX_DIGITS = 64  # with leading zeros; for thousands of digits Python's int() raises another ValueError
_ENCODED_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")  # Java also accepts one that is cut off


def string_hash(text: str) -> int:
    """``String.hashCode()``: a signed 32-bit number over the UTF-16 units of ``text``."""
    code = 0
    if text.isascii():
        for unit in text.encode("ascii"):
            code = (31 * code + unit) & 0xFFFFFFFF
    else:
        raw = text.encode("utf-16-be", "surrogatepass")
        for i in range(0, len(raw), 2):
            code = (31 * code + (raw[i] << 8 | raw[i + 1])) & 0xFFFFFFFF
    return code - (1 << 32) if code >= 1 << 31 else code


def decode_utf8(raw: bytes) -> str:
    """``new String(raw, UTF_8)``: malformed bytes become U+FFFD, an encoded surrogate one of them."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return _ENCODED_SURROGATE.sub("\ufffd".encode(), raw).decode("utf-8", "replace")


def encode_utf8(text: str) -> bytes:
    """``text.getBytes(UTF_8)``: an unpaired surrogate becomes a question mark."""
    return text.encode("utf-8", "replace")


def parse_number(text: str, max_value: int) -> int:
    """``Integer.parseInt`` (``max_value`` is INT_MAX) or ``Long.parseLong`` (LONG_MAX); raises ValueError.

    The error has Java's words. Unlike int(), neither takes blanks or ``1_0``.
    """
    digits = text[1:] if text[:1] in ("+", "-") else text
    if digits.isdecimal() and len(digits) <= _MAX_DIGITS and -max_value - 1 <= (number := int(text)) <= max_value:
        return number
    raise ValueError(f'For input string: "{text[:_MAX_DIGITS]}"')


NOT_UTF8 = "it holds half a surrogate pair, which UTF-8 does not have"


def is_utf8(text: str) -> bool:
    """Whether UTF-8 preserves a text: half a surrogate pair would become a question mark (:func:`encode_utf8`)."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
