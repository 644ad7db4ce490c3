"""Texts and bytes as values of columns, strictly: timestamps, dates, decimals, base64.

Each function raises ValueError, whose text completes the sentence "the field: …".
"""

from __future__ import annotations

import base64
import re
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation

from gantrymq.tables.bodies.shapes import Scalar

MIN_TIMESTAMP_US = -62_135_596_800_000_000  # 0001-01-01T00:00:00Z, before which Spark and Python have no dates
MAX_TIMESTAMP_US = 253_402_300_799_999_999
MIN_DAYS, MAX_DAYS = MIN_TIMESTAMP_US // 86_400_000_000, MAX_TIMESTAMP_US // 86_400_000_000

_TIMESTAMP = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt ](\d\d)(?::(\d\d)(?::(\d\d)(?:[.,](\d{1,9}))?)?)?"
    r"(?:([Zz])|([+-])(\d\d)(?::?(\d\d))?)?",
    re.ASCII,
)
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_BASE64 = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_EPOCH_DAY = date(1970, 1, 1).toordinal()


def timestamp_us(text: str) -> int:
    """Microseconds since 1970 of an ISO 8601 text with a zone. Digits after the sixth of a second are cut off."""
    parts = _TIMESTAMP.fullmatch(text)
    if parts is None:
        raise ValueError(f"{shown(text)} is no ISO 8601 timestamp such as 2026-11-29T08:30:00Z")
    year, month, day, hour, minute, second, fraction, utc, sign, zone_hours, zone_minutes = parts.groups()
    if utc is None and sign is None:
        raise ValueError(f"{shown(text)} has no zone: end it with Z or an offset such as +08:00")
    offset_minutes = 0 if utc else int(zone_hours) * 60 + int(zone_minutes or 0)
    try:
        if int(zone_hours or 0) > 23 or int(zone_minutes or 0) > 59:
            raise ValueError("the offset")
        numbers = (int(number or 0) for number in (year, month, day, hour, minute, second))
        moment = datetime(*numbers, tzinfo=UTC)  # type: ignore[arg-type, misc]
    except ValueError:
        raise ValueError(f"{shown(text)} is no time of the calendar") from None
    days = moment.toordinal() - _EPOCH_DAY
    seconds = days * 86_400 + moment.hour * 3_600 + moment.minute * 60 + moment.second
    seconds -= (-offset_minutes if sign == "-" else offset_minutes) * 60
    return checked_timestamp_us(seconds * 1_000_000 + int((fraction or "")[:6].ljust(6, "0")))


def checked_timestamp_us(value: int) -> int:
    """A number of microseconds since 1970, within the years 1 to 9999."""
    if not MIN_TIMESTAMP_US <= value <= MAX_TIMESTAMP_US:
        raise ValueError("out of range: a timestamp is within the years 1 to 9999")
    return value


def date_days(text: str) -> int:
    """Days since 1970 of an ISO 8601 date."""
    if _DATE.fullmatch(text) is None:
        raise ValueError(f"{shown(text)} is no ISO 8601 date such as 2026-11-29")
    try:
        return date.fromisoformat(text).toordinal() - _EPOCH_DAY
    except ValueError:
        raise ValueError(f"{shown(text)} is no date of the calendar") from None


def decimal_value(number: Decimal | int, scalar: Scalar) -> Decimal:
    """A number as a decimal of a column, if the column holds it exactly."""
    number = Decimal(number)
    if not number.is_finite() or (number and number.adjusted() >= scalar.precision - scalar.scale):
        raise ValueError(f"out of range: the number has more digits than {scalar} before the point")
    if not number:  # with any exponent, such as 0e999
        return Decimal(0)
    sign, digits, exponent = number.as_tuple()
    excess = -scalar.scale - int(exponent)
    if excess <= 0:
        return number
    if any(digits[-excess:]):
        raise ValueError(f"the number has more digits than {scalar} after the point")
    return Decimal((sign, digits[:-excess] or (0,), -scalar.scale))


def json_number(token: bytes, scalar: Scalar) -> Decimal:
    """A number of JSON as a decimal."""
    text = token.decode("utf-8")
    if _NUMBER.fullmatch(text) is None:
        raise ValueError(f"expected {scalar}, got another value")
    try:
        return decimal_value(Decimal(text), scalar)
    except InvalidOperation:
        raise ValueError(f"out of range: the number has more digits than {scalar}") from None


def base64_bytes(text: str) -> bytes:
    """The bytes of a text in base64, with padding and without line ends."""
    if _BASE64.fullmatch(text) is None:
        raise ValueError("the text is not base64")
    return base64.b64decode(text)


def shown(text: str) -> str:
    """A text in a reason: its begin, in quotes."""
    return repr(text if len(text) <= 40 else text[:39] + "…")
