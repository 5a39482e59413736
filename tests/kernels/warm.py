"""Compile all kernels once, on all cores, before test workers start: ``python -m tests.kernels.warm``.

Numba compiles a kernel when it is first called, so each of several test workers would compile the same ones. The
signatures they are called with are in ``signatures.json``; ``--record`` writes that file anew from what has been
compiled so far. A signature that no longer fits its kernel is passed over: the kernel is compiled when it is called.
"""

from __future__ import annotations

import importlib
import json
import os
import pickle
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter
from typing import Any

from numba.core import types
from numba.core.dispatcher import Dispatcher

import semistream

SIGNATURES = Path(__file__).with_name("signatures.json")
_PACKAGE = Path(semistream.__file__).parent
_NAMES = {**vars(types), "bool": types.boolean}
_Kernels = dict[str, list[str]]


def kernel_modules() -> Iterator[str]:
    """All modules called ``kernels``, or in a folder of that name."""
    for file in sorted(_PACKAGE.rglob("*.py")):
        parts = file.relative_to(_PACKAGE.parent).with_suffix("").parts
        if "kernels" in parts and parts[-1] != "__init__":
            yield ".".join(parts)


def dispatchers(module: str) -> dict[str, Any]:
    """The kernels of a module."""
    found = vars(importlib.import_module(module)).items()
    return {name: each for name, each in found if isinstance(each, Dispatcher) and each.py_func.__module__ == module}


def record() -> _Kernels:
    """The signatures in Numba's cache that can be written down, by kernel."""
    found: _Kernels = {}
    for module in kernel_modules():
        folder, stem = Path(str(importlib.import_module(module).__file__)).parent, module.rpartition(".")[2]
        for name in dispatchers(module):
            signatures: set[str] = set()
            for index in (folder / "__pycache__").glob(f"{stem}.{name}-*.nbi"):
                with index.open("rb") as file:
                    pickle.load(file)  # the version
                    _, overloads = pickle.loads(file.read())
                signatures |= {repr(list(key[0])) for key in overloads if all(map(_is_plain, key[0]))}
            if signatures:
                found[f"{module}:{name}"] = sorted(signatures)
    return found


def _is_plain(type_: types.Type) -> bool:
    plain = types.Array, types.Integer, types.Float, types.Boolean
    return isinstance(type_, plain) and not isinstance(type_, types.Literal)


def compile_module(kernels: _Kernels) -> int:
    """Compile kernels of a module; return how many signatures fitted."""
    compiled = 0
    for kernel, signatures in kernels.items():
        module, _, name = kernel.partition(":")
        dispatcher = dispatchers(module).get(name)
        for signature in signatures if dispatcher is not None else ():
            try:
                dispatcher.compile(tuple(eval(signature, _NAMES)))  # type: ignore[union-attr]
            except Exception:  # it has changed: its callers compile it as it is now
                continue
            compiled += 1
    return compiled


def main() -> None:
    if "--record" in sys.argv:
        SIGNATURES.write_text(json.dumps(record(), indent=0) + "\n")
        return
    began, cores = perf_counter(), os.cpu_count() or 1
    by_module: dict[str, _Kernels] = {}
    for kernel, signatures in json.loads(SIGNATURES.read_text()).items():
        by_module.setdefault(kernel.partition(":")[0], {})[kernel] = signatures
    largest_first = sorted(by_module.values(), key=lambda kernels: -sum(map(len, kernels.values())))
    with ProcessPoolExecutor(cores, mp_context=get_context("spawn")) as pool:
        compiled = sum(pool.map(compile_module, largest_first))
    sys.stdout.write(f"{compiled} kernels are compiled for this machine: {perf_counter() - began:.0f} s\n")


if __name__ == "__main__":
    main()
