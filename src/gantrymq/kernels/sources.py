"""Digests of kernel sources, which change with the code and not with docstrings.

A kernel depends on its module, on every module of gantrymq that this one imports, directly or indirectly, and on
``compiler``. The digest covers their syntax trees without docstrings, so that edits of comments, docstrings and layout
compile nothing.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache
from hashlib import sha256
from pathlib import Path

_PACKAGE = "gantrymq"
_ROOT = Path(__file__).parent.parent
_COMPILER = f"{_PACKAGE}.kernels.compiler"
_DIGEST_LETTERS = 20
_HAVE_DOCSTRINGS = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def kernel_digest(module: str) -> str:
    """Return a digest of all code that the kernels of ``gantrymq.kernels.MODULE`` depend on, including the compiler.

    Raises OSError if a source cannot be read, SyntaxError if one is not valid Python.
    """
    names = {*_closure(f"{_PACKAGE}.kernels.{module}"), _COMPILER}
    return sha256("\n".join(f"{name} {_code_digest(_path(name))}" for name in sorted(names)).encode()).hexdigest()[
        :_DIGEST_LETTERS
    ]


def kernel_sources(modules: list[str]) -> list[Path]:
    """Return the files of all code that these kernel modules depend on."""
    roots = [f"{_PACKAGE}.kernels.{module}" for module in modules]
    return sorted({_path(_COMPILER), *(_path(name) for root in roots for name in _closure(root))})


@lru_cache(maxsize=256)
def _closure(root: str) -> frozenset[str]:
    """Return the modules of gantrymq that ``root`` imports, directly or indirectly, including itself."""
    found: set[str] = set()
    ahead = [root]
    while ahead:
        name = ahead.pop()
        if name not in found:
            found.add(name)
            ahead.extend(_imported(name))
    return frozenset(found)


@lru_cache(maxsize=256)
def _imported(name: str) -> tuple[str, ...]:
    return tuple(_imports(_parse(_path(name))))


def _imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if _is_module(alias.name))
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == _PACKAGE:
            submodules = [f"{node.module}.{alias.name}" for alias in node.names]
            modules = [module for module in submodules if _is_module(module)]
            yield from modules
            if len(modules) < len(submodules):
                yield node.module


def _is_module(name: str) -> bool:
    return name.split(".", maxsplit=1)[0] == _PACKAGE and _path(name).exists()


def _path(name: str) -> Path:
    stem = _ROOT.joinpath(*name.split(".")[1:])
    package = stem / "__init__.py"
    return package if package.exists() else stem.with_suffix(".py")


@lru_cache(maxsize=256)
def _parse(path: Path) -> ast.Module:
    return ast.parse(path.read_bytes(), str(path))


@lru_cache(maxsize=256)
def _code_digest(path: Path) -> str:
    tree = _parse(path)
    for node in ast.walk(tree):
        if isinstance(node, _HAVE_DOCSTRINGS) and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return sha256(ast.dump(tree).encode()).hexdigest()
