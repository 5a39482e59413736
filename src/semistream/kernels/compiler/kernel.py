"""Decorators of kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit
from numba.core import config

from semistream.kernels.compiler.stored_code import StoredCode

Function = Callable[..., Any]


def kernel(function: Function | None = None, *, allocates: bool = False) -> Any:
    """Compile a function of arrays and numbers that Python calls, without the interpreter's lock; keep its code.

    A kernel that makes no arrays does not count references. Numba would do so at every mention of an array, by atomic
    instructions: a tuple in a window join would take four times as long. Without them it also compiles in half the
    time. ``allocates`` says that the kernel, or a part of it, makes arrays, sorts or copies slices.
    """
    if function is None:
        return lambda each: kernel(each, allocates=allocates)
    compiled = njit(nogil=True, _nrt=allocates)(function)
    if not config.DISABLE_JIT:
        StoredCode(compiled)
    return compiled


def part(function: Function) -> Any:
    """Inline a function into the kernels that call it."""
    return njit(inline="always")(function)


def subroutine(function: Function | None = None, *, allocates: bool = False) -> Any:
    """Compile a function that only kernels call on its own; LLVM inlines it where that pays."""
    if function is None:
        return lambda each: subroutine(each, allocates=allocates)
    return njit(nogil=True, _nrt=allocates, no_cpython_wrapper=True)(function)
