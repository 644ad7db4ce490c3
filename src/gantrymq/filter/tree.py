"""The syntax tree of an SQL92 expression, and the checks that RocketMQ makes while it builds one.

A chain of AND or OR is one node with several operands, so that a long chain is not a deep tree.

Source: org.apache.rocketmq.filter.expression (the static create methods and their checks).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import assert_never

from gantrymq.errors import FilterSyntaxError
from gantrymq.filter.values import Long, Value, compare

MAX_DEPTH = 200


class Order(Enum):
    """An operator that compares numbers."""

    GREATER = ">"
    GREATER_EQUAL = ">="
    LESS = "<"
    LESS_EQUAL = "<="


class TextTest(Enum):
    """An operator that looks for a text in a value."""

    CONTAINS = "CONTAINS"
    STARTS_WITH = "STARTSWITH"
    ENDS_WITH = "ENDSWITH"


@dataclass(frozen=True, slots=True)
class Property:
    """The value of a property, a string, or null if the message does not have it."""

    name: str
    depth: int = 1


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal. None is NULL."""

    value: Value | None
    depth: int = 1


@dataclass(frozen=True, slots=True)
class Negate:
    """``-operand``: null unless the operand is a number."""

    operand: Node
    depth: int


@dataclass(frozen=True, slots=True)
class Not:
    """``NOT operand``."""

    operand: Node
    depth: int


@dataclass(frozen=True, slots=True)
class BooleanCast:
    """A property used as a condition: null without the property, else false, because a string is not a boolean."""

    operand: Property
    depth: int = 2


@dataclass(frozen=True, slots=True)
class Logic:
    """Conditions joined by AND (``is_and``) or by OR."""

    is_and: bool
    operands: tuple[Node, ...]
    depth: int


@dataclass(frozen=True, slots=True)
class Ordering:
    """``left order right``."""

    order: Order
    left: Node
    right: Node
    depth: int


@dataclass(frozen=True, slots=True)
class Equal:
    """``left = right``. With the constant NULL on the right it is IS NULL."""

    left: Node
    right: Node
    depth: int


@dataclass(frozen=True, slots=True)
class TextMatch:
    """``operand [NOT] CONTAINS text``, and the same with STARTSWITH and ENDSWITH. Never null."""

    test: TextTest
    operand: Node
    text: str
    is_negated: bool
    depth: int


@dataclass(frozen=True, slots=True)
class In:
    """``property [NOT] IN (texts)``."""

    name: str
    texts: frozenset[str]
    is_negated: bool
    depth: int = 2


Operand = Property | Constant | Negate
"""Nodes that are no conditions, but for the literals TRUE, FALSE and NULL."""

Condition = Not | BooleanCast | Logic | Ordering | Equal | TextMatch | In
"""Nodes that give a boolean or null. AND, OR and NOT accept them; ``>`` and BETWEEN refuse them."""

Node = Operand | Condition
NULL = Constant(None)


def negate(operand: Node) -> Node:
    """``-operand``."""
    return Negate(operand, _above(operand))


def invert(operand: Node) -> Node:
    """``NOT operand``."""
    condition = as_condition(operand)
    return Not(condition, _above(condition))


def as_condition(node: Node) -> Node:
    """The node as a condition (asBooleanExpression). Raises FilterSyntaxError if it is not a boolean."""
    if isinstance(node, Property):
        return BooleanCast(node)
    if not _is_boolean(node):
        raise FilterSyntaxError(f"the expression does not give a boolean: {_shown(node)}")
    return node


def join(operands: Iterable[Node], *, is_and: bool) -> Node:
    """Conditions joined by AND or OR."""
    conditions = tuple(map(as_condition, operands))
    return Logic(is_and, conditions, _above(*conditions))


def equal(left: Node, right: Node) -> Node:
    """``left = right``. Raises FilterSyntaxError for NULL, and for a boolean literal on the left of another literal."""
    if NULL in (left, right):
        raise FilterSyntaxError("NULL cannot be compared: use IS NULL")
    constants = isinstance(left, Constant) and isinstance(right, Constant)
    if constants and _is_boolean(left) and not _is_boolean(right):
        raise FilterSyntaxError(f"{_shown(left)} cannot be compared with {_shown(right)}")
    return Equal(left, right, _above(left, right))


def is_null(operand: Node) -> Node:
    """``operand IS NULL``."""
    return Equal(operand, NULL, _above(operand))


def ordering(order: Order, left: Node, right: Node) -> Node:
    """``left > right``, ``>=``, ``<`` or ``<=``. Raises FilterSyntaxError for conditions and non-numeric literals."""
    for node in (left, right):
        is_number = isinstance(node, Constant) and _is_number(node.value)
        if not is_number and (isinstance(node, Constant) or _is_boolean(node)):
            raise FilterSyntaxError(f"{_shown(node)} cannot be compared by {order.value}")
    return Ordering(order, left, right, _above(left, right))


def between(value: Node, low: Node, high: Node) -> Node:
    """``value BETWEEN low AND high``. Raises FilterSyntaxError if the limits are literals in the wrong order."""
    above = ordering(Order.GREATER_EQUAL, value, low)
    below = ordering(Order.LESS_EQUAL, value, high)
    if isinstance(low, Constant) and isinstance(high, Constant):
        assert low.value is not None, "ordering() has refused NULL"
        assert high.value is not None, "ordering() has refused NULL"
        if compare(high.value, low.value) < 0:
            raise FilterSyntaxError(f"the limits of BETWEEN are in the wrong order: {low.value}, {high.value}")
    return join((above, below), is_and=True)


def not_between(value: Node, low: Node, high: Node) -> Node:
    """``value NOT BETWEEN low AND high``. Unlike BETWEEN, limits in the wrong order are accepted."""
    return join((ordering(Order.LESS, value, low), ordering(Order.GREATER, value, high)), is_and=False)


def text_match(test: TextTest, operand: Node, text: str, *, is_negated: bool) -> Node:
    """``operand CONTAINS text``, or the same with STARTSWITH or ENDSWITH."""
    return TextMatch(test, operand, text, is_negated, _above(operand))


def in_list(operand: Node, texts: Iterable[str], *, is_negated: bool) -> Node:
    """``operand IN (texts)``. Raises FilterSyntaxError if the operand is not a property."""
    if not isinstance(operand, Property):
        raise FilterSyntaxError(f"IN needs a property, not {_shown(operand)}")
    return In(operand.name, frozenset(texts), is_negated)


def _above(*operands: Node) -> int:
    depth = 1 + max(operand.depth for operand in operands)
    if depth > MAX_DEPTH:
        raise FilterSyntaxError(f"the expression is nested deeper than {MAX_DEPTH}")
    return depth


def _is_boolean(node: Node) -> bool:
    if isinstance(node, Constant):
        return node.value is None or isinstance(node.value, bool)
    if isinstance(node, Condition):
        return True
    if isinstance(node, Property | Negate):
        return False
    assert_never(node)


def _is_number(value: Value | None) -> bool:
    return type(value) in (int, Long, float)


def _shown(node: Node) -> str:
    """A literal or property as it is written in the expression; the kind of any other node."""
    if isinstance(node, Constant):
        return "NULL" if node.value is None else repr(node.value)[:100]
    return node.name[:100] if isinstance(node, Property) else type(node).__name__
