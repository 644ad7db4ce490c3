"""The syntax tree of a query: which views it names, and which keys it wants of each.

DuckDB gives the tree as JSON and takes it back. Each reference to a view gets a name of its own, so that it has a scan
of its own: with the keys that its WHERE asks for, and also if two topics differ in case only, which DuckDB does not
tell apart. A condition on keys stays in the query; the scan only may leave out messages that it excludes.

Thread rule: plain functions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from gantrymq.errors import GantrymqError

Node = dict[str, Any]
_HAS_ONE = {"list_contains", "list_has", "array_contains", "array_has"}
_HAS_ANY = {"list_has_any", "array_has_any", "&&"}
_HAS_ALL = {"list_has_all", "array_has_all", "@>"}
_KEYS = "keys"
_SHOWN_NAMES = 3


class QueryError(GantrymqError):
    """A query that is wrong, in one line."""


@dataclass(frozen=True, slots=True)
class Reference:
    """A view that a query names. ``scan`` is its name in the rewritten query; ``keys`` as in :meth:`Views.view`."""

    scan: str
    view: str
    keys: frozenset[str] | None


def rewrite(tree: Node, names: list[str]) -> list[Reference]:
    """Give each reference to one of the views ``names`` a name of its own, in place. Raises QueryError."""
    references: list[Reference] = []
    wanted = _wanted_keys(tree)
    for table in list(_tables(tree, frozenset())):
        name = _resolved(str(table["table_name"]), names)
        scan = f"__scan_{len(references)}"
        references.append(Reference(scan, name, wanted.get(id(table))))
        table["alias"] = table["alias"] or name
        table["table_name"], table["schema_name"], table["catalog_name"] = scan, "", ""
        table["qualified_name"] = {"path": [scan]}
    return references


def _tables(node: Any, hidden: frozenset[str]) -> Iterator[Node]:
    """Yield the references to tables that are not common table expressions, nor of another schema."""
    if isinstance(node, list):
        for child in node:
            yield from _tables(child, hidden)
        return
    if not isinstance(node, dict):
        return
    if node.get("type") == "BASE_TABLE":
        is_ours = node.get("schema_name") in ("", "main") and node.get("catalog_name") in ("", "memory")
        if is_ours and str(node["table_name"]).casefold() not in hidden:
            yield node
    if node.get("type") == "RECURSIVE_CTE_NODE":
        hidden |= {str(node.get("cte_name", "")).casefold()}
    inner = hidden
    for entry in (node.get("cte_map") or {}).get("map", ()):
        yield from _tables(entry["value"], inner)
        inner |= {str(entry["key"]).casefold()}
    for name, child in node.items():
        if name != "cte_map":
            yield from _tables(child, inner)


def _resolved(name: str, names: list[str]) -> str:
    if name in names:
        return name
    same = [other for other in names if other.casefold() == name.casefold()]
    if len(same) == 1:
        return same[0]
    near = same or get_close_matches(name, names, _SHOWN_NAMES) or names[:_SHOWN_NAMES]
    shown = ", ".join(near) if near else "none: the source has no topic"
    raise QueryError(f"there is no topic or table {name}; the nearest names are {shown}")


def _wanted_keys(tree: Any) -> dict[int, frozenset[str]]:
    """The keys that conditions of WHERE demand, by the identity of the table's node."""
    demands: dict[int, frozenset[str]] = {}
    for select in _selects(tree):
        tables = list(_inner_tables(select.get("from_table")))
        for condition in _conjuncts(select.get("where_clause")):
            if (demand := _demand(condition)) is None:
                continue
            qualifier, keys = demand
            matching = [table for table in tables if not qualifier or _name_of(table) == qualifier]
            if len(matching) == 1 and (qualifier or len(tables) == 1 == _sources_in(select["from_table"])):
                known = demands.get(id(matching[0]))
                demands[id(matching[0])] = keys if known is None or len(keys) < len(known) else known
    return demands


def _selects(node: Any) -> Iterator[Node]:
    if isinstance(node, list):
        for child in node:
            yield from _selects(child)
    elif isinstance(node, dict):
        if node.get("type") == "SELECT_NODE":
            yield node
        for child in node.values():
            yield from _selects(child)


def _inner_tables(table: Any) -> Iterator[Node]:
    """The tables that a WHERE may narrow before the join: only inner joins lie between."""
    if not isinstance(table, dict) or table.get("sample") is not None:
        return
    if table.get("type") == "BASE_TABLE" and not table.get("column_name_alias"):
        yield table
    elif (
        table.get("type") == "JOIN"
        and table.get("join_type") == "INNER"
        and table.get("ref_type") in ("REGULAR", "CROSS")
    ):
        yield from _inner_tables(table["left"])
        yield from _inner_tables(table["right"])


def _sources_in(table: Any) -> int:
    """How many tables a FROM names, of any kind."""
    if isinstance(table, dict) and table.get("type") == "JOIN":
        return _sources_in(table["left"]) + _sources_in(table["right"])
    return 1


def _name_of(table: Node) -> str:
    return str(table["alias"] or table["table_name"]).casefold()


def _conjuncts(condition: Any) -> Iterator[Node]:
    if not isinstance(condition, dict):
        return
    if condition.get("type") == "CONJUNCTION_AND":
        for child in condition["children"]:
            yield from _conjuncts(child)
    else:
        yield condition


def _demand(condition: Node) -> tuple[str, frozenset[str]] | None:
    """The table's name ("" if it is not given) and the keys of which a condition demands at least one."""
    if condition.get("type") != "FUNCTION" or len(condition.get("arguments", ())) != 2:
        return None
    function = str(condition["function_name"]).casefold()
    first, second = (argument["expression"] for argument in condition["arguments"])
    if function == "&&" and first.get("type") != "COLUMN_REF":
        first, second = second, first
    column = [str(name).casefold() for name in first.get("column_names", ())]
    if first.get("type") != "COLUMN_REF" or column[-1:] != [_KEYS] or len(column) > 2:
        return None
    values = [second] if function in _HAS_ONE else _list_values(second)
    texts = [value["literal"]["text"] for value in values if _is_text(value)]
    if not texts or len(texts) < len(values) or function not in _HAS_ONE | _HAS_ANY | _HAS_ALL:
        return None
    return "".join(column[:-1]), frozenset(texts[:1] if function in _HAS_ALL else texts)


def _list_values(value: Node) -> list[Node]:
    if value.get("type") == "FUNCTION" and value.get("function_name") == "list_value":
        return [argument["expression"] for argument in value["arguments"]]
    return []


def _is_text(value: Node) -> bool:
    return value.get("type") == "VALUE_CONSTANT" and value.get("literal", {}).get("kind") == "STRING"
