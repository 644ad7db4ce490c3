"""Random SQL92 expressions and properties, for the comparison of our evaluator with RocketMQ's."""

from __future__ import annotations

import random

NAMES = ("a", "b", "Long_$1", "_x", "missing")
NUMBERS = ("0", "1", "5", "007", "5L", "2147483647", "2147483648", "9223372036854775807", "9223372036854775808", "5.0")
NUMBERS += ("5.", ".5", "5E2", "5.E-1", "0.0", "1e400", "1E-400", "9007199254740993", "-5", "- 1", "--1", "+2", "0L")
TEXTS = ("''", "'x'", "'it''s'", "'5'", "'true'", "'ab'", "'ä 漢'", "'-- no'")
VALUES = (
    "",
    "0",
    "5",
    "-5",
    "+5",
    "05",
    "5.0",
    " 5",
    "5 ",
    "5L",
    "5f",
    "0x1p3",
    "1e2",
    "NaN",
    "-0.0",
    "0.0",
    "Infinity",
)
VALUES += ("-Infinity", "2147483648", "-2147483648", "9223372036854775808", "x", "ab", "xaby", "it's", "TRUE", "true")
VALUES += ("false", "٥", "5_0", "1e400", "1.", ".5", ".", "ä 漢", "++5", "1e", "9007199254740993", "0" * 70 + "5", "𝟓")
JUNK = (
    "#",
    "'",
    "/* c */",
    "-- c\n",
    "--",
    "/*",
    "(",
    ")",
    ",",
    "AND",
    "NOT",
    "IS",
    "LIKE",
    "NULL",
    "1",
    "a",
    "=",
    "!=",
)
JUNK += ("BETWEEN", "IN", "<", "contains", "b = 2", "1.5.5", "ſ", "İS", "\f", "\v", "\u00a0", ";", "%", "5a", "1E+")


def expression(random_: random.Random) -> str:
    """An expression that is usually valid."""
    text = condition(random_, 3)
    return text if random_.random() < 0.75 else _disturbed(random_, text)


def _disturbed(random_: random.Random, text: str) -> str:
    """The expression with a word removed, repeated or added."""
    words = text.split(" ")
    at = random_.randrange(len(words))
    kind = random_.randrange(3)
    if kind == 0:
        del words[at]
    else:
        words.insert(at, random_.choice(JUNK) if kind == 1 else random_.choice(words))
    if random_.random() < 0.2:
        words.append(random_.choice(JUNK))
    return " ".join(words)


def condition(random_: random.Random, depth: int) -> str:
    """A condition of at most ``depth`` levels."""
    kind = random_.randrange(14 if depth else 9)
    value = operand(random_, depth)
    negation = random_.choice(("", "NOT "))
    if kind == 0:
        return f"{value} {random_.choice(('=', '<>'))} {operand(random_, depth)}"
    if kind <= 2:
        return f"{value} {random_.choice(('>', '>=', '<', '<='))} {operand(random_, depth)}"
    if kind == 3:
        return f"{value} {negation}BETWEEN {operand(random_, 0)} AND {operand(random_, 0)}"
    if kind == 4:
        texts = ", ".join(random_.choice(TEXTS) for _ in range(random_.randint(1, 6)))
        return f"{random_.choice((value, random_.choice(NAMES)))} {negation}in ({texts})"
    if kind == 5:
        return f"{value} is {negation}null"
    if kind == 6:
        test = random_.choice(("CONTAINS", "StartsWith", "endswith"))
        return f"{value} {negation}{test} {random_.choice(TEXTS)}"
    if kind == 7:
        return random_.choice((*NAMES, "TRUE", "false", "NULL"))
    if kind == 8:
        return f"{random_.choice(NAMES)} {random_.choice(('=', '<>', '>', '<='))} {random_.choice(NUMBERS)}"
    if kind <= 11:
        word = random_.choice(("AND", "OR", "and", "Or"))
        return f" {word} ".join(condition(random_, depth - 1) for _ in range(random_.randint(2, 4)))
    if kind == 12:
        return f"NOT ( {condition(random_, depth - 1)} )"
    return f"( {condition(random_, depth - 1)} )"


def operand(random_: random.Random, depth: int) -> str:
    """A property, a literal, or now and then something else."""
    kind = random_.randrange(20)
    if kind < 9:
        return random_.choice(NAMES)
    if kind < 14:
        return random_.choice(NUMBERS)
    if kind < 17:
        return random_.choice(TEXTS)
    if kind == 17:
        return random_.choice(("TRUE", "FALSE", "NULL"))
    if kind == 18:
        return random_.choice(("-", "+")) + " " + random_.choice(NAMES)
    return f"( {condition(random_, depth - 1)} )" if depth else "b"


def properties(random_: random.Random) -> dict[str, str]:
    """The properties of a message, as a decoder gives them: none is empty."""
    names = [name for name in NAMES[:-1] if random_.random() < 0.8]
    return {name: value for name in names if (value := random_.choice(VALUES))}
