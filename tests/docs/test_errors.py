"""Every error crosses from one process to another as it is: multiprocessing and Spark pickle what a worker raises."""

from __future__ import annotations

import errno
import importlib
import pickle
import pkgutil
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import pytest

import semistream
from semistream.errors import BudgetError, ColumnNotFound, SemistreamError, StorageError

ARGUMENTS: dict[type[SemistreamError], tuple[tuple[Any, ...], dict[str, Any]]] = {
    ColumnNotFound: (("prise", ["price", "id"]), {"where": "relation r"}),
    StorageError: ((errno.ENOSPC, "the disk is full"), {}),
    BudgetError: (("too small",), {"least_bytes": 7}),
}


def _kinds(kind: type[SemistreamError]) -> Iterator[type[SemistreamError]]:
    yield kind
    for each in kind.__subclasses__():
        yield from _kinds(each)


def _every_kind() -> list[type[SemistreamError]]:
    for module in pkgutil.walk_packages(semistream.__path__, "semistream."):
        if not module.name.startswith(("semistream.spark", "semistream.cli")):
            importlib.import_module(module.name)
    return sorted(set(_kinds(SemistreamError)), key=lambda kind: kind.__name__)


def _made(kind: type[SemistreamError]) -> SemistreamError:
    positional, named = ARGUMENTS.get(kind, (("what is wrong",), {}))
    return kind(*positional, **named)


def _raise(kind: type[SemistreamError]) -> None:
    raise _made(kind)


@pytest.mark.parametrize("kind", _every_kind(), ids=lambda kind: kind.__name__)
def test_an_error_survives_pickling(kind: type[SemistreamError]) -> None:
    error = _made(kind)
    back = pickle.loads(pickle.dumps(error))
    assert type(back) is kind
    assert (str(back), back.args, vars(back)) == (str(error), error.args, vars(error))
    assert getattr(back, "errno", None) == getattr(error, "errno", None)


def test_the_errors_of_a_pools_workers_are_raised_in_the_parent() -> None:
    with ProcessPoolExecutor(1, get_context("forkserver")) as pool:
        for kind in ARGUMENTS:
            with pytest.raises(kind, match=str(_made(kind)).replace("(", r"\(")):
                pool.submit(_raise, kind).result(timeout=30)
