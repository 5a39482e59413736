"""Each public name has a complete docstring, and the root says that everything else is internal."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from abc import ABC
from pathlib import Path
from typing import Any, Protocol, get_origin

import pytest

import semistream

PUBLIC = ("semistream", "semistream.spark", "semistream.windows", "semistream.shedding", "semistream.datasets")
SOURCE = Path(__file__).parents[2] / "src"
_HEADING = re.compile(r"^(\w[\w ]*)\n-{3,}$", re.MULTILINE)


def _parsed(package: str) -> ast.Module:
    return ast.parse(SOURCE.joinpath(*package.split("."), "__init__.py").read_text())


def _exported(module: str) -> list[str]:
    return list(importlib.import_module(module).__all__)


def _is_constant(module: str, name: str) -> bool:
    """True for values and type aliases, which are not classes or functions; `semistream.spark` has none."""
    if module == "semistream.spark":
        return False
    value = getattr(importlib.import_module(module), name)
    return not inspect.isclass(value) and (not callable(value) or get_origin(value) is not None)


NAMES = [(module, name) for module in PUBLIC for name in _exported(module)]
CONSTANTS = [pair for pair in NAMES if _is_constant(*pair)]
PACKAGES = sorted(".".join(file.parent.relative_to(SOURCE).parts) for file in SOURCE.rglob("__init__.py"))


@pytest.fixture(params=[pair for pair in NAMES if pair not in CONSTANTS], ids=".".join)
def public(request: pytest.FixtureRequest) -> Any:
    """A public class or function."""
    module, name = request.param
    if module == "semistream.spark":
        pytest.importorskip("pyspark")
    return getattr(importlib.import_module(module), name)


def _text(value: Any) -> str:
    return inspect.cleandoc(value.__doc__ or "")  # getdoc would return the docstring of a base class


def _sections(value: Any) -> dict[str, str]:
    """Return the text of each section of a docstring, by its heading."""
    _, *parts = _HEADING.split(_text(value))
    return dict(zip(parts[::2], parts[1::2], strict=True))


def _takes(value: Any) -> list[str]:
    """Return the parameters, except self, ``*args`` and ``**kwargs``; none for an exception."""
    if inspect.isclass(value) and issubclass(value, BaseException):
        return []
    gathered = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    parameters = inspect.signature(value).parameters.values()
    return [each.name for each in parameters if each.kind not in gathered and not each.name.startswith(("self", "_"))]


def _has_own_signature(value: Any) -> bool:
    """False for a class that inherits its constructor. A dataclass has its own."""
    return not inspect.isclass(value) or not {"__init__", "__new__"}.isdisjoint(value.__dict__)


def _named_in(section: str) -> set[str]:
    """Return the names in the lines ``name : type`` or ``name, name : type`` of a section."""
    heads = [line.split(" :")[0] for line in section.splitlines() if line and not line.startswith(" ")]
    return {name.strip() for head in heads for name in head.split(",")}


def test_it_opens_with_a_sentence(public: Any) -> None:
    assert _text(public), "no docstring"
    first = _text(public).splitlines()[0]
    assert first.endswith("."), f"the first line has no full stop: {first!r}"


def test_it_has_parameters_or_methods(public: Any) -> None:
    if _takes(public):
        assert "Parameters" in _sections(public)
    elif inspect.isclass(public) and {ABC, Protocol} & {*public.__bases__}:
        assert "Methods" in _sections(public)


def test_it_names_every_parameter(public: Any) -> None:
    if _has_own_signature(public):
        section = _sections(public).get("Parameters", "")
        named = _named_in(section)
        for base in re.findall(r"Other parameters are those of `(\w+)`", section):
            named |= _named_in(_sections(getattr(semistream, base))["Parameters"])
        assert [name for name in _takes(public) if name not in named] == []


def test_it_has_an_example_and_skips_none(public: Any) -> None:
    assert ">>>" in _sections(public).get("Examples", "")
    assert "+SKIP" not in _text(public)


def test_it_has_references(public: Any) -> None:
    assert _sections(public).get("References", "").strip()


@pytest.mark.parametrize(("module", "name"), CONSTANTS)
def test_a_constant_has_a_docstring_below_it(module: str, name: str) -> None:
    imports = [node for node in _parsed(module).body if isinstance(node, ast.ImportFrom)]
    (home,) = (node.module for node in imports if name in [each.name for each in node.names])
    body = ast.parse(inspect.getsource(importlib.import_module(str(home)))).body
    (at,) = (
        i
        for i, node in enumerate(body)
        if isinstance(node, ast.Assign | ast.AnnAssign)
        and name == ast.unparse(node.target if isinstance(node, ast.AnnAssign) else node.targets[0])
    )
    below = body[at + 1]
    assert isinstance(below, ast.Expr)
    assert isinstance(below.value, ast.Constant)
    assert isinstance(below.value.value, str)


@pytest.mark.parametrize("package", [package for package in PACKAGES if package not in PUBLIC])
def test_an_internal_package_has_a_docstring(package: str) -> None:
    assert ast.get_docstring(_parsed(package))


def test_the_root_names_the_public_modules_and_calls_the_rest_internal() -> None:
    text = " ".join((ast.get_docstring(_parsed("semistream")) or "").split())
    for module in PUBLIC:
        assert f"`{module}`" in text
    assert "Everything else is internal" in text
