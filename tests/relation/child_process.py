"""Runs a function in a process of its own that may be killed, starved of disk, or measured."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_CONTEXT = multiprocessing.get_context("forkserver")  # a clean process that has already imported what is preloaded
_CONTEXT.set_forkserver_preload(["semistream.relation", "tests.relation.row_sets"])


def run_child(function: Callable[..., Any], *args: Any) -> tuple[int, Any]:
    """The exit code of a process that called ``function``, and what it gave or raised (None if it was killed)."""
    receiver, sender = _CONTEXT.Pipe(duplex=False)
    process = _CONTEXT.Process(target=_call, args=(sender, function, args))
    process.start()
    sender.close()
    try:
        result = receiver.recv()
    except EOFError:
        result = None
    process.join()
    code = process.exitcode
    process.close()
    receiver.close()
    assert code is not None
    return code, result


@contextmanager
def running_child(function: Callable[..., Any], *args: Any) -> Iterator[Any]:
    """A process at work in ``function(pipe, *args)`` since it has sent something; it ends when the pipe is closed."""
    own, other = _CONTEXT.Pipe()
    process = _CONTEXT.Process(target=function, args=(other, *args))
    process.start()
    other.close()
    try:
        assert own.poll(60), "the child process did not get to work"
        own.recv()
        yield process
    finally:
        own.close()
        process.join()
        process.close()


def _call(sender: Any, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    try:
        result = function(*args)
    except Exception as error:
        result = f"{type(error).__name__}: {error}"
    sender.send(result)


def die_at(point: str, when: str, nth: int = 1) -> None:
    """Have this process killed just before or after the ``nth`` call of ``point``, a "module:name.name"."""
    module, _, names = point.partition(":")
    *path, last = names.split(".")
    owner: Any = importlib.import_module(module)
    for name in path:
        owner = getattr(owner, name)
    real, calls = getattr(owner, last), [0]

    def dying(*args: Any, **kwargs: Any) -> Any:
        calls[0] += 1
        if calls[0] == nth and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = real(*args, **kwargs)
        if calls[0] == nth:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, last, dying)


def limit_file_size(nbytes: int) -> None:
    """Let no file of this process grow beyond ``nbytes``: writing on fails as on a full disk."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, nbytes))
