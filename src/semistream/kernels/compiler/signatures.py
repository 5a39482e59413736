"""The signatures with which kernels are called, as a file of text: what to compile ahead."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

from numba.core import types as numba_types
from numba.core.dispatcher import Dispatcher

Signatures = dict[str, list[list[Any]]]
"""Signatures by kernel (``module:name``), each a list of types in words."""

FILE = Path(__file__).with_name("signatures.json")

types: Any = numba_types

_NAMES = {**vars(types), "bool": types.boolean}


def read_signatures() -> Signatures:
    """Return the signatures of all kernels."""
    found: Signatures = json.loads(FILE.read_text())
    return found


def words_of(type_: Any) -> Any:
    """Return a type as JSON: a named tuple as its class and its fields, another type as Numba writes it.

    >>> words_of(types.int64[::1])
    "Array(int64, 1, 'C', False, aligned=True)"
    """
    if isinstance(type_, types.BaseNamedTuple):
        class_ = type_.instance_class
        return {"class": f"{class_.__module__}:{class_.__qualname__}", "fields": [words_of(field) for field in type_]}
    return repr(types.unliteral(type_))


def type_of(words: Any) -> Any:
    """Return the type of its words.

    >>> type_of("Array(int64, 1, 'C', False, aligned=True)") == types.int64[::1]
    True
    """
    if isinstance(words, dict):
        module, _, name = words["class"].partition(":")
        fields = [type_of(field) for field in words["fields"]]
        return types.BaseTuple.from_types(fields, getattr(importlib.import_module(module), name))
    return eval(words, _NAMES)


def dispatcher_of(kernel: str) -> Any:
    """Return the kernel of a name; None if there is no longer one."""
    module, _, name = kernel.partition(":")
    try:
        found = getattr(importlib.import_module(module), name, None)
    except ImportError:
        return None
    return found if isinstance(found, Dispatcher) else None
