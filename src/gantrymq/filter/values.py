"""The values of an expression: reading numbers from strings and comparing values as Java does.

A value is a str (every property), bool, int (Java's Integer), Long or float (Double). Two values of different types are
made comparable as in Java; a string that is not a number of the other value's type raises EvaluationError.

Source: ComparisonExpression.__compare, Integer.valueOf, Long.valueOf, Double.valueOf, Double.compareTo.
"""

from __future__ import annotations

import re
from math import copysign, inf, isnan

from gantrymq.errors import GantrymqError
from gantrymq.model.java import INT_MAX, LONG_MAX, parse_number

# Possessive, because a property may have 32 KB of digits.
_FLOAT = re.compile(r"[+-]?(?:NaN|Infinity|(?:[0-9]++\.?[0-9]*+|\.[0-9]++)(?:[eE][+-]?[0-9]++)?[fFdD]?)")
_HEX_FLOAT = re.compile(r"([+-]?0[xX](?:[0-9a-fA-F]++\.?[0-9a-fA-F]*+|\.[0-9a-fA-F]++)[pP][+-]?[0-9]++)[fFdD]?")
_MAX_CHARACTERS = 1024  # characters of a number: a property may have 32 KB, and an expression a thousand comparisons
_TRIMMED = "".join(map(chr, range(0x21)))  # the characters that String.trim removes


class EvaluationError(GantrymqError):
    """An expression cannot be evaluated for a message; the message does not match."""


class Long(int):
    """A Java Long. An int is an Integer."""


Value = str | bool | int | Long | float


def compare(left: Value, right: Value) -> int:
    """Negative, 0 or positive, as Java compares the two. For strings only zero or not zero has a meaning.

    Raises EvaluationError if a string is not a number of the other type, or a boolean is compared with a string on its
    right (a ClassCastException in Java).
    """
    left_type, right_type = type(left), type(right)
    if left_type is not right_type:
        if left_type is bool:
            if right_type is str:
                raise EvaluationError("a boolean cannot be compared with a string on its right")
            return -1
        if left_type is str:
            left = _from_text(str(left), right_type)
        elif right_type is str:
            right = _from_text(str(right), left_type)
        elif right_type is bool:
            return -1
    if isinstance(left, str) or isinstance(right, str):
        return int(left != right)
    if isinstance(left, float) or isinstance(right, float):
        return compare_doubles(float(left), float(right))
    return (left > right) - (left < right)


def compare_doubles(left: float, right: float) -> int:
    """Double.compareTo: -0.0 is less than 0.0, and NaN is equal to itself and greater than all others."""
    if left < right:
        return -1
    if left > right:
        return 1
    if left == right != 0:
        return 0
    return _rank(left) - _rank(right)


def _rank(value: float) -> int:
    """A number that orders -0.0, 0.0 and NaN as Java does; 0.0 for all other values."""
    if isnan(value):
        return 2
    return 0 if value or copysign(1, value) > 0 else -1


def _from_text(text: str, type_: type) -> Value:
    if type_ is bool:
        return text.isascii() and text.lower() == "true"
    if type_ is float:
        return to_double(text)
    return to_integer(text, INT_MAX if type_ is int else LONG_MAX)


def to_integer(text: str, max_value: int) -> int:
    """Integer.valueOf (``max_value`` is INT_MAX) or Long.valueOf: a sign and digits. Raises EvaluationError."""
    sign = text[:1] if text[:1] in ("+", "-") else ""
    if text.startswith("0", len(sign)) and len(text) <= _MAX_CHARACTERS:
        text = sign + (text[len(sign) :].lstrip("0") or "0")
    try:
        if len(text) > _MAX_CHARACTERS:
            raise ValueError
        if not text.isascii() and max(text) > "\uffff":  # Java reads UTF-16 units: such a digit is two of them
            raise ValueError
        return parse_number(text, max_value)
    except ValueError:
        raise EvaluationError("a property is not an integer, or too large, and is compared with one") from None


def to_double(text: str) -> float:
    """Double.valueOf. Raises EvaluationError if the text is not a number."""
    text = text.strip(_TRIMMED)
    if len(text) <= _MAX_CHARACTERS and _FLOAT.fullmatch(text):
        return float(text.rstrip("fFdD"))
    match = _HEX_FLOAT.fullmatch(text) if len(text) <= _MAX_CHARACTERS else None
    if match is None:
        raise EvaluationError("a property is not a number, and is compared with one")
    try:
        return float.fromhex(match[1])
    except OverflowError:
        return -inf if text.startswith("-") else inf
