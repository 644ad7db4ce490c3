"""What Java's String does, where RocketMQ relies on it: hashCode over UTF-16 units, and its lenient UTF-8."""

import re

_ENCODED_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")  # Java takes one that is cut off as one, too


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
    """``new String(raw, UTF_8)``: what is malformed becomes U+FFFD, an encoded surrogate, even cut off, one of them."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return _ENCODED_SURROGATE.sub("\ufffd".encode(), raw).decode("utf-8", "replace")


def encode_utf8(text: str) -> bytes:
    """``text.getBytes(UTF_8)``: an unpaired surrogate becomes a question mark."""
    return text.encode("utf-8", "replace")
