"""The examples in docstrings run, those of the package and those of the experiments."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import experiments
import semistream

WITHOUT_SPARK = [
    module.name
    for module in pkgutil.walk_packages(semistream.__path__, "semistream.")
    if not module.name.startswith(("semistream.spark", "semistream.cli"))
]
EXPERIMENTS = [module.name for module in pkgutil.walk_packages(experiments.__path__, "experiments.")]


@pytest.mark.parametrize("name", WITHOUT_SPARK + EXPERIMENTS)
def test_the_examples_of(name: str) -> None:
    module = importlib.import_module(name)
    assert doctest.testmod(module, optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE).failed == 0
