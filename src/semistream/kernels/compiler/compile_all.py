"""Compile all kernels ahead, on all cores."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from time import perf_counter
from typing import Any

from numba.core import config
from numba.core.errors import NumbaError
from numba.core.registry import cpu_target

from semistream.errors import InvalidArgument
from semistream.kernels.compiler.processor_levels import LEVELS, numba_environment, own_target, usable_targets
from semistream.kernels.compiler.signatures import dispatcher_of, read_signatures, type_of
from semistream.kernels.compiler.store import STORE

_LINUX_ONLY = "semistream.relation.read.kernels.serve_reads:"  # it calls eventfd
Progress = Callable[[int, int], None]
"""Called with the numbers of kernels compiled so far and in all."""


@dataclass(frozen=True)
class Compiled:
    """What `compile_all` did for one processor level."""

    level: str
    kernels: int
    seconds: float


def level_of_this_machine() -> str:
    """Return the best level of this processor, or a name for exactly this processor if it has none."""
    usable = usable_targets(cpu_target.target_context.codegen().magic_tuple())
    return next((target for target in usable if target in LEVELS), usable[0])


def missing_kernels(level: str) -> dict[str, list[Any]]:
    """Return the signatures, by kernel, whose code for a level is not in the store."""
    missing: dict[str, list[Any]] = {}
    for kernel, words in _known_signatures():
        code = dispatcher_of(kernel)._cache
        args = tuple(map(type_of, words))
        if not STORE.has(f"{level}/{code.name_of(args)}"):
            missing.setdefault(kernel, []).append(words)
    return missing


def stored_kernels() -> Iterator[str]:
    """Yield the names of the files of all known signatures in this machine's own folder, of any level."""
    known = {dispatcher_of(kernel)._cache.name_of(tuple(map(type_of, words))) for kernel, words in _known_signatures()}
    yield from (name for name in STORE.names_in(STORE.folder) if name.rpartition("/")[2] in known)


def compile_all(level: str | None = None, progress: Progress | None = None) -> Compiled:
    """Compile all kernels that are not in the store yet, in one process for each core.

    Args:
        level: processor level; that of this machine if None. Code of a level runs on every processor of that level or
            a higher one.
        progress: called after each kernel.
    """
    began, level = perf_counter(), level or level_of_this_machine()
    exact = own_target(cpu_target.target_context.codegen().magic_tuple())
    if level not in LEVELS and level != exact:
        raise InvalidArgument(f"there is no processor level {level!r}; give one of {', '.join(LEVELS)}.")
    kernels = missing_kernels(level)
    done, total = 0, sum(map(len, kernels.values()))
    if total == 0:
        return Compiled(level, 0, perf_counter() - began)
    progress = progress or (lambda *_: None)
    progress(0, total)
    workers = min(os.cpu_count() or 1, len(kernels))
    with ProcessPoolExecutor(workers, get_context("spawn"), initializer=_target, initargs=(level,)) as pool:
        jobs = [pool.submit(_compile, kernel, signatures) for kernel, signatures in kernels.items()]
        for job in as_completed(jobs):
            done += job.result()
            progress(done, total)
    return Compiled(level, done, perf_counter() - began)


def _known_signatures() -> Iterator[tuple[str, list[Any]]]:
    """Signatures that fit a kernel, the longest first, as they take longest to compile."""
    for kernel, signatures in sorted(read_signatures().items(), key=lambda item: -len(str(item[1][0]))):
        if kernel.startswith(_LINUX_ONLY) and sys.platform != "linux":
            continue
        dispatcher = dispatcher_of(kernel)
        if dispatcher is not None:
            arguments = dispatcher.py_func.__code__.co_argcount
            yield from ((kernel, words) for words in signatures if len(words) == arguments)


def _target(level: str) -> None:
    """Let this process compile for a level. Numba reads the setting when the first kernel is imported."""
    logging.getLogger("semistream.kernels.compiler").setLevel(logging.ERROR)
    if level in LEVELS:
        settings = numba_environment(level)
        config.CPU_NAME, config.CPU_FEATURES = settings["NUMBA_CPU_NAME"], settings["NUMBA_CPU_FEATURES"]


def _compile(kernel: str, signatures: list[Any]) -> int:
    for words in signatures:
        try:
            dispatcher_of(kernel).compile(tuple(map(type_of, words)))
        except NumbaError:  # the kernel has changed, and takes other arrays now
            continue
    return len(signatures)
