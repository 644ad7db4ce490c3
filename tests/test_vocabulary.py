"""The names of the source: words that say nothing, two classes of one name, constants below classes."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator

import pytest

from gantrymq import errors
from test_tidy import ROOT, Module, modules, tell

WORDS = {"one", "ones", "found", "place", "places", "most", "least", "asked", "gone", "kept", "taken"}
# Names of RocketMQ: a member of PullStatus and of GetMessageStatus.
ROCKETMQ_NAMES = {"FOUND"}


PACKAGES = sorted({name.split(".")[1] for name in modules() if name.startswith("gantrymq.")})


def defined_names(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """(name, line) of variables, parameters, attributes, functions and classes where they are defined."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()) | ast.arg(arg=name):
                yield name, node.lineno
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name, node.lineno
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield name, node.lineno
            case ast.alias(asname=str(name)):
                yield name, node.lineno


def empty_names(module: Module) -> list[str]:
    """The names of a module that are one of ``WORDS``, with the lines."""
    return [
        f"{module.shown}:{line}: {name}: say what it is"
        for name, line in defined_names(module.tree)
        if name.strip("_").lower() in WORDS and name not in ROCKETMQ_NAMES
    ]


def in_package(package: str) -> list[Module]:
    return [module for name, module in modules().items() if [*name.split("."), ""][1] == package]


@pytest.mark.parametrize("package", PACKAGES)
def test_names_of_package_say_what_they_are(package: str) -> None:
    tell([finding for module in in_package(package) for finding in empty_names(module)])


def test_defined_names_finds_each_kind_of_definition() -> None:
    source = """
import json as alias

class Group:
    field: int = 0

async def function(parameter, *rest, **options):
    self.attribute = lambda argument: [item for item in rest]
    try:
        with open(parameter) as file:
            (variable := 1)
    except OSError as error:
        match variable:
            case [first, *others]:
                pass
"""
    expected = (
        "Group alias argument attribute error field file first function item options others parameter rest variable"
    )
    assert {name for name, _ in defined_names(ast.parse(source))} == {*expected.split(), "variable"}


def drawn(error: type[BaseException], indent: str = "") -> Iterator[str]:
    """The lines of a tree of subclasses in ``gantrymq.errors``, each with its other bases."""
    children = [child for child in error.__subclasses__() if child.__module__ == errors.__name__]
    for child in children:
        others = [base.__name__ for base in child.__bases__ if base.__module__ != errors.__name__]
        branch, below = ("└── ", "    ") if child is children[-1] else ("├── ", "│   ")
        yield f"{indent}{branch}{child.__name__}{f' ({others[0]})' if others else ''}"
        yield from drawn(child, indent + below)


def test_errors_begin_with_tree_of_their_classes() -> None:
    tree = ["GantrymqError", *drawn(errors.GantrymqError)]
    assert errors.__doc__ is not None
    assert errors.__doc__.partition("::\n\n")[2].splitlines() == [f"    {line}" for line in tree]
    own = [value for value in vars(errors).values() if getattr(value, "__module__", "") == errors.__name__]
    assert len(tree) == sum(isinstance(value, type) for value in own)


def test_names_in_glossary_exist() -> None:
    """The second column of docs/glossary.md: the spelling in code."""
    glossary = (ROOT / "docs" / "glossary.md").read_text("utf-8")
    rows = [line.split("|") for line in glossary.splitlines() if line.startswith("| ") and "`" in line.split("|")[2]]
    words = {word for row in rows for word in re.findall(r"`(\w+)", row[2])}
    words_of_source = {
        word for module in modules().values() for word in re.findall(r"\w+", module.path.read_text("utf-8"))
    }
    prefixes = {"PROPERTY_"}
    assert len(rows) >= 40
    assert sorted(words - words_of_source - prefixes) == []


def late_constants(module: Module) -> Iterator[str]:
    """Constants below the first class of a module, except those that need a class or a function of it."""
    below, own = False, set[str]()
    for node in module.tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            own.add(node.name)
            below = below or isinstance(node, ast.ClassDef)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            names = [name for name, _ in defined_names(node)]
            if own & {name.id for name in ast.walk(node) if isinstance(name, ast.Name)}:
                own.update(names)
            elif below and names and all(name.isupper() for name in names):
                yield f"{module.shown}:{node.lineno}: {names[0]}: put it above the first class"


@pytest.mark.parametrize("package", PACKAGES)
def test_constants_of_package_stand_above_its_classes(package: str) -> None:
    tell([finding for module in in_package(package) for finding in late_constants(module)])


def test_public_classes_have_names_of_their_own() -> None:
    modules_of: dict[str, set[str]] = defaultdict(set)
    for module in modules().values():
        if module.name.startswith("gantrymq."):
            for node in ast.walk(module.tree):
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    modules_of[node.name].add(module.name)
    doubles = {name: names for name, names in modules_of.items() if len(names) > 1}
    tell([f"class {name} is in {', '.join(sorted(doubles[name]))}" for name in sorted(doubles)])
