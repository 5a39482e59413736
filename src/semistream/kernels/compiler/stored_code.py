"""StoredCode: the machine code of one kernel, found in the store or compiled and kept there."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import logging
import pickle
import re
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import local
from time import perf_counter
from typing import Any

import llvmlite
import numba
from numba.core import config
from numba.core.caching import _Cache
from numba.core.compiler import CompileResult
from numba.core.serialize import dumps
from numba.core.sigutils import normalize_signature

from semistream.kernels.compiler.processor_levels import own_target, usable_targets
from semistream.kernels.compiler.signatures import words_of
from semistream.kernels.compiler.store import STORE

logger = logging.getLogger("semistream.kernels.compiler")

_FORMAT = 1  # of the files, to be raised when it or the decorators change
_VERSIONS = f"format {_FORMAT} {sys.implementation.cache_tag} numba {numba.__version__} llvmlite {llvmlite.__version__}"
_IMPORT = re.compile(r"^\s*from (semistream(?!\.kernels\.compiler)[\w.]*) import", re.MULTILINE)


class _Depth(local):
    """How many kernels the current thread is compiling: one calls another that is not compiled yet."""

    kernels = 0


class CompiledHere:
    """Kernels that this process compiled itself, and the seconds that took."""

    kernels = 0
    seconds = 0.0


compiled_here = CompiledHere()
_depth = _Depth()


class StoredCode(_Cache):  # type: ignore[misc]
    """Stored machine code of a kernel, one file for each signature, processor level and version of the sources.

    A file's name has a digest of everything that determines the code: the kernel's module and all modules of the
    package that it imports, the signature, Numba's options, and the versions of Python, Numba and LLVM. So a file is
    right or not found. It is read on any machine whose processor has the level that it was compiled for.

    Numba asks for code by `load_overload`, and calls `compile` for what is not there.
    """

    def __init__(self, dispatcher: Any) -> None:
        self._dispatcher, self._function = dispatcher, dispatcher.py_func
        self._compile = dispatcher._compiler.compile
        dispatcher._compiler.compile = self.compile
        dispatcher._cache = self

    @property
    def cache_path(self) -> str:
        """The folder to which new code is written."""
        return str(STORE.folder)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the stored code of a signature, or None."""
        target_context.refresh()
        args, _ = normalize_signature(sig)
        return self._load(self.name_of(args), target_context)

    def compile(self, args: Any, return_type: Any) -> Any:
        """Compile a signature and store the code, unless another process is doing so: then wait for it."""
        name, context = self.name_of(args), self._dispatcher.targetctx
        with STORE.lock(name) as waited:
            found = self._load(name, context) if waited else None
            if found is not None:
                context.insert_user_function(found.entry_point, found.fndesc, [found.library])
                return found
            with _timed():
                compiled = self._compile(args, return_type)
            if not compiled.library.has_dynamic_globals:
                target = own_target(compiled.codegen.magic_tuple())
                STORE.write(f"{target}/{name}", self._header(args), zlib.compress(dumps(compiled._reduce()), 1))
            return compiled

    def save_overload(self, sig: Any, data: Any) -> None:
        """Do nothing: `compile` has stored it."""

    def enable(self) -> None:
        """Do nothing: the store is always used."""

    def disable(self) -> None:
        """Do nothing: the store is always used."""

    def flush(self) -> None:
        """Do nothing: a file that is no longer right is never found."""

    def _load(self, name: str, target_context: Any) -> Any:
        for target in usable_targets(target_context.codegen().magic_tuple()):
            for _, code in STORE.read(f"{target}/{name}"):
                try:
                    return CompileResult._rebuild(target_context, *pickle.loads(zlib.decompress(code)))
                except Exception:  # whatever is wrong with it, the kernel can be compiled
                    logger.warning("stored code of %s does not load; it is compiled anew", name, exc_info=True)
        return None

    def _header(self, args: Any) -> bytes:
        """Return what a file says of itself: the kernel and its signature."""
        kernel = f"{self._function.__module__}:{self._function.__qualname__}"
        return json.dumps([kernel, list(map(words_of, args))]).encode()

    def name_of(self, args: Any) -> str:
        """Return the name of a signature's file in the folder of a processor level."""
        module, options = self._function.__module__, sorted(self._dispatcher.targetoptions.items())
        settings = config.OPT, config.BOUNDSCHECK, config.LOOP_VECTORIZE, config.SLP_VECTORIZE
        text = "\n".join([self._function.__qualname__, repr(tuple(args)), repr(options), repr(settings), _VERSIONS])
        digest = hashlib.sha256(source_digest(module) + text.encode()).hexdigest()[:20]
        return f"{module.removeprefix('semistream.')}.{self._function.__name__}-{digest}"


@contextmanager
def _timed() -> Iterator[None]:
    """Count a kernel, and its seconds unless they are part of another's; say so before the first."""
    if compiled_here.kernels == 0 and _depth.kernels == 0:
        logger.warning(
            "compiling kernels for this processor, once; they are kept in %s. `semistream compile` compiles all ahead.",
            STORE.folder,
        )
    began = perf_counter()
    _depth.kernels += 1
    try:
        yield
    finally:
        _depth.kernels -= 1
        compiled_here.kernels += 1
        if _depth.kernels == 0:
            compiled_here.seconds += perf_counter() - began


@cache
def source_digest(module: str) -> bytes:
    """Return a digest of a module's source and of all modules of the package that it imports."""
    digest = hashlib.sha256()
    for each in sorted(_sources(module)):
        digest.update(f"{each}\n{_source(each)}\n".encode())
    return digest.digest()


def _sources(module: str) -> set[str]:
    found, left = set(), [module]
    while left:
        each = left.pop()
        if each not in found:
            found.add(each)
            left += _IMPORT.findall(_source(each))
    return found


@cache
def _source(module: str) -> str:
    spec = importlib.util.find_spec(module)
    loader: Any = None if spec is None else spec.loader
    return (loader and loader.get_source(module)) or ""
