"""Compiles a syntax tree to closures over the properties of a message.

A closure returns a value, or None for null. It raises EvaluationError where Java's evaluation throws. As in Java the
operands are evaluated from left to right, and only as many as needed.

Source: the evaluate methods of org.apache.rocketmq.filter.expression.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import singledispatch

from gantrymq.filter.tree import (
    BooleanCast,
    Constant,
    Equal,
    In,
    Logic,
    Negate,
    Node,
    Not,
    Order,
    Ordering,
    Property,
    TextMatch,
    TextTest,
)
from gantrymq.filter.values import Long, Value, compare, compare_doubles, to_double

Properties = Mapping[str, str]
Evaluate = Callable[[Properties], Value | None]

_HOLDS: dict[Order, Callable[[int], bool]] = {
    Order.GREATER: lambda sign: sign > 0,
    Order.GREATER_EQUAL: lambda sign: sign >= 0,
    Order.LESS: lambda sign: sign < 0,
    Order.LESS_EQUAL: lambda sign: sign <= 0,
}
_TESTS: dict[TextTest, Callable[[str, str], bool]] = {
    TextTest.CONTAINS: str.__contains__,
    TextTest.STARTS_WITH: str.startswith,
    TextTest.ENDS_WITH: str.endswith,
}


@singledispatch
def compile_node(node: Node) -> Evaluate:
    """The closure that evaluates a node. Its depth is at most MAX_DEPTH, and so is that of the calls."""
    raise TypeError(f"no such node: {node!r}")


@compile_node.register
def _(node: Property) -> Evaluate:
    name = node.name
    return lambda properties: properties.get(name)


@compile_node.register
def _(node: Constant) -> Evaluate:
    value = node.value
    return lambda properties: value


@compile_node.register
def _(node: Negate) -> Evaluate:
    operand = compile_node(node.operand)

    def negate(properties: Properties) -> Value | None:
        value = operand(properties)
        if isinstance(value, Long):
            return Long(-value)
        return -value if type(value) in (int, float) else None  # type: ignore[operator]

    return negate


@compile_node.register
def _(node: Not) -> Evaluate:
    operand = compile_node(node.operand)

    def invert(properties: Properties) -> bool | None:
        value = operand(properties)
        return None if value is None else not value

    return invert


@compile_node.register
def _(node: BooleanCast) -> Evaluate:
    name = node.operand.name
    return lambda properties: False if name in properties else None


@compile_node.register
def _(node: Logic) -> Evaluate:
    operands, decides = tuple(map(compile_node, node.operands)), not node.is_and

    def logic(properties: Properties) -> bool | None:
        has_null = False
        for operand in operands:
            value = operand(properties)
            if value is decides:
                return decides
            has_null |= value is None
        return None if has_null else not decides

    return logic


@compile_node.register
def _(node: Ordering) -> Evaluate:
    left, right, holds = compile_node(node.left), compile_node(node.right), _HOLDS[node.order]

    def ordering(properties: Properties) -> bool | None:
        first = left(properties)
        if first is None:
            return None
        second = right(properties)
        if second is None:
            return None
        if type(first) is str and type(second) is str:
            return holds(compare_doubles(to_double(first), to_double(second)))
        return holds(compare(first, second))

    return ordering


@compile_node.register
def _(node: Equal) -> Evaluate:
    left, right = compile_node(node.left), compile_node(node.right)

    def equal(properties: Properties) -> bool | None:
        first, second = left(properties), right(properties)
        if first is None:
            return True if second is None else None
        return second is not None and compare(first, second) == 0

    return equal


@compile_node.register
def _(node: TextMatch) -> Evaluate:
    if not node.text:
        return lambda properties: False  # the same with NOT, and without evaluating the operand
    operand, text, wanted, test = compile_node(node.operand), node.text, not node.is_negated, _TESTS[node.test]

    def match(properties: Properties) -> bool:
        value = operand(properties)
        return type(value) is str and test(value, text) is wanted

    return match


@compile_node.register
def _(node: In) -> Evaluate:
    name, texts, wanted = node.name, node.texts, not node.is_negated

    def is_in(properties: Properties) -> bool | None:
        value = properties.get(name)
        return None if value is None else (value in texts) is wanted

    return is_in
