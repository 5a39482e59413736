"""The examples in docstrings run."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import semistream

WITHOUT_SPARK = [
    module.name
    for module in pkgutil.walk_packages(semistream.__path__, "semistream.")
    if not module.name.startswith(("semistream.spark", "semistream.cli"))
]


@pytest.mark.parametrize("name", WITHOUT_SPARK)
def test_the_examples_of(name: str) -> None:
    module = importlib.import_module(name)
    assert doctest.testmod(module, optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE).failed == 0
