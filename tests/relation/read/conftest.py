"""A relation of many pages for tests of reading."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from semistream.relation import Relation
from tests.relation.row_sets import scratch_folder

ROWS = 20_000


@pytest.fixture(scope="module")
def relation() -> Iterator[Relation]:
    with scratch_folder() as folder:
        table = pa.table({"k": np.arange(ROWS), "s": [f"{i}" if i % 9 else None for i in range(ROWS)]})
        yield Relation.build(table, folder / "r", key="k", page_bytes=1024)


def open_files() -> set[str]:
    found = set()
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            found.add(str(descriptor.readlink()))
        except FileNotFoundError:  # the one that lists them
            continue
    return {path for path in found if path.endswith(".arrow")} - _BEFORE.files


def threads() -> list[str]:
    own = [thread for thread in threading.enumerate() if thread not in _BEFORE.threads]
    return [thread.name for thread in own if "semistream" in thread.name]


class _Before:
    """Files and threads of other tests in this process, to be ignored here."""

    files: frozenset[str] = frozenset()
    threads: frozenset[threading.Thread] = frozenset()


_BEFORE = _Before()


@pytest.fixture(autouse=True, scope="module")
def _what_others_left() -> None:
    gc.collect()
    _BEFORE.files = frozenset()
    _BEFORE.files, _BEFORE.threads = frozenset(open_files()), frozenset(threading.enumerate())
