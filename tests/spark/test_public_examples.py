"""The examples in the docstrings of the public names of `semistream.spark` run."""

from __future__ import annotations

import doctest
import inspect
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="pip install 'semistream[spark]' to run these")
import semistream.spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("name", semistream.spark.__all__)
def test_the_examples_of(name: str, spark: SparkSession, rocksdb: None) -> None:
    public = getattr(semistream.spark, name)
    module = inspect.getmodule(public)
    assert module is not None
    found = doctest.DocTestFinder().find(public, name, module, extraglobs={"spark": spark})
    examples = [each for each in found if each.examples]
    assert examples, f"{name} has no example"
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    for each in examples:
        runner.run(each)
    assert runner.summarize(verbose=False).failed == 0
    assert all(doctest.SKIP not in example.options for each in examples for example in each.examples)
