"""World: a folder, a clock, and processes that die at any step."""

from __future__ import annotations

import os
import secrets
import shutil
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NoReturn
from unittest.mock import patch

import numpy as np

from semistream.pipelines.ledger import faults

_RENAME = os.rename
_CALLS = ("replace", "rename", "link", "unlink", "mkdir", "fsync")
_MOST_STEPS = 10_000  # of a process: some 50 batches
Role = Literal["driver", "worker", "driver of tasks"]


class Killed(BaseException):
    """This process was killed: it does nothing any more, whatever its code goes on to do."""


@dataclass(frozen=True)
class Kill:
    """A kill of a process at its ``step``-th step, counted from 0, or at the ``step``-th time it reaches a ``point``.

    A step is a point of the ledger's protocol, or a call that changes a folder or syncs a file. For a "driver of tasks"
    it is a task: the driver dies before that, and the task is done all the same, when another driver runs.
    """

    role: Role
    step: int = 0
    point: str = ""


class World:
    """A ``folder`` with all that a history has, the virtual time, and the steps that processes have taken.

    A killed process is unwound by an exception. What its code then does must have no effect, so the folder is moved
    away until it has ended.
    """

    def __init__(self, base: Path, seed: int) -> None:
        self.folder = base / "world"
        self._aside = base / "aside"
        self.folder.mkdir(parents=True)
        self.now = 1_800_000_000.0
        self.steps: list[str] = []
        """Names of the steps of all processes, in their order."""
        self.while_reading_updates: Callable[[], None] = lambda: None
        """What others do while a driver reads updates, such as to bring more."""
        self.orphans: list[Callable[[], Any]] = []
        """Tasks of dead drivers, which workers still have."""
        self._generator = np.random.default_rng(seed)
        self._processes: list[_Process] = []

    def clock(self) -> float:
        """Return the time in seconds, a little later at each call."""
        self.now += 0.001
        return self.now

    @contextmanager
    def simulated(self) -> Iterator[None]:
        """Count the steps within the block, and draw random names from the history's seed."""
        with ExitStack() as patched:
            for name in _CALLS:
                patched.enter_context(patch.object(os, name, self._counted(name, getattr(os, name))))
            patched.enter_context(patch.object(faults, "handler", self._step))
            patched.enter_context(patch.object(secrets, "token_hex", lambda n=8: self._generator.bytes(n).hex()))
            patched.enter_context(patch.object(uuid, "uuid4", lambda: uuid.UUID(bytes=self._generator.bytes(16))))
            yield

    def run(self, role: Role, kill: Kill | None, work: Callable[[], Any]) -> bool:
        """Run the work of a process; return False if it was killed. A worker runs inside its driver."""
        process = _Process(role, kill if kill is not None and kill.role == role else None)
        self._processes.append(process)
        try:
            work()
        except BaseException:
            if not process.dead:
                raise
        finally:
            self._processes.pop()
            if process.dead:
                shutil.rmtree(self.folder, ignore_errors=True)  # what the dead process has made since
                _RENAME(self._aside, self.folder)
        return not process.dead

    def die(self) -> NoReturn:
        """Kill the process that runs now."""
        process = self._processes[-1]
        process.dead = True
        self.steps.append(f"{process.role} killed")
        _RENAME(self.folder, self._aside)
        raise Killed

    def run_orphans(self) -> None:
        """Do the tasks of dead drivers. Whether they end well is of no interest to anybody."""
        while self.orphans:
            with suppress(Exception):
                self.run("worker", None, self.orphans.pop())

    @property
    def simulates(self) -> bool:
        """True if a process runs that may be killed, and false at the end of a history."""
        return bool(self._processes)

    @contextmanager
    def outside(self) -> Iterator[None]:
        """Let others act within the block, such as the source of files; that is no step of a process."""
        processes, self._processes = self._processes, []
        try:
            yield
        finally:
            self._processes = processes

    def _counted(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **named: Any) -> Any:
            if not self._processes or threading.current_thread() is not threading.main_thread():
                return call(*args, **named)
            self._step(name)
            return None if name == "fsync" else call(*args, **named)  # kills lose nothing that was written

        return counted

    def _step(self, name: str) -> None:
        if not self._processes or threading.current_thread() is not threading.main_thread():
            return
        process = self._processes[-1]
        if process.dead:
            raise Killed
        if process.kill is not None and process.kill.point in ("", name):
            if process.left == 0:
                self.die()
            process.left -= 1
        process.steps += 1
        assert process.steps < _MOST_STEPS, f"a {process.role} does not end: its last steps are {self.steps[-8:]}"
        self.steps.append(name)


@dataclass
class _Process:
    role: Role
    kill: Kill | None
    left: int = 0
    steps: int = 0
    dead: bool = False

    def __post_init__(self) -> None:
        self.left = 0 if self.kill is None else self.kill.step
