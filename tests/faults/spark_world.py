"""A Spark that outlives its drivers, and may itself be killed: the JVM, its executors, its Python workers."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import psutil

from tests.spark.quick_jvm import QUICK_START

_ROOT = Path(__file__).parents[2]
_LONGEST_S = 180.0


class SparkWorld:
    """A JVM with drivers, one after the other. ``log`` has the output of all of them."""

    def __init__(self, log: Path, master: str = "local[2]") -> None:
        self.log, self.master = log, master
        self._process: subprocess.Popen[bytes] | None = None
        self._jvm = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def start_driver(
        self, spec: dict[str, Any], fault: str = "", worker_fault: str = "", *, reconcile: bool = False
    ) -> Driver:
        """A driver at work; the JVM is started if there is none."""
        process = self._process or self._start()
        wanted = {"spec": spec, "fault": fault, "worker_fault": worker_fault, "reconcile": reconcile}
        line = json.dumps(wanted)
        assert process.stdin is not None
        process.stdin.write(line.encode() + b"\n")
        process.stdin.flush()
        answer = self.answer(_LONGEST_S)
        assert answer is not None, f"no driver was made; see {self.log}"
        return Driver(self, answer["pid"])

    def run(self, spec: dict[str, Any], fault: str = "", worker_fault: str = "", *, reconcile: bool = False) -> int:
        """Start a driver, wait for its end, and return its exit code."""
        return self.start_driver(spec, fault, worker_fault, reconcile=reconcile).wait()

    def workers(self) -> list[psutil.Process]:
        """Python workers that run tasks now or did before."""
        return [each for each in self._below() if "pyspark.daemon" in _command(each) and _is_worker(each)]

    def executors(self) -> list[psutil.Process]:
        """The JVMs of executors, if these are processes of their own."""
        return [each for each in self._below() if "CoarseGrainedExecutorBackend" in _command(each)]

    def kill_jvm(self) -> None:
        """Kill the JVM and all processes it has started."""
        with suppress(psutil.NoSuchProcess):
            for each in [*self._below(), psutil.Process(self._jvm)]:
                with suppress(psutil.NoSuchProcess):
                    each.kill()

    def end(self) -> None:
        """End all processes; the next driver gets a new JVM."""
        if self._process is not None:
            self.kill_jvm()
            self._process.communicate()  # its input ends, and so it does, when the driver at work has
            self._process = None

    def answer(self, timeout_s: float) -> dict[str, int] | None:
        """Return the next line from the process that makes drivers; None if none arrives in time."""
        assert self._process is not None
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            if not selector.select(timeout_s):
                return None
        line = b""
        while not line.endswith(b"\n"):
            byte = os.read(self._process.stdout.fileno(), 1)
            assert byte, f"the process that makes drivers has ended; see {self.log}"
            line += byte
        return json.loads(line)  # type: ignore[no-any-return]

    def tail(self) -> str:
        """The end of the log."""
        return self.log.read_text(errors="replace")[-4000:]

    def _start(self) -> subprocess.Popen[bytes]:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.drivers", self.master, str(self.log)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=_ROOT,
            env={"SPARK_SUBMIT_OPTS": QUICK_START, **environment, "PYSPARK_PYTHON": sys.executable},
        )
        started = self.answer(_LONGEST_S)
        assert started is not None, f"Spark did not start; see {self.log}"
        self._jvm = started["jvm"]
        return self._process

    def _below(self) -> list[psutil.Process]:
        with suppress(psutil.NoSuchProcess):
            return psutil.Process(self._jvm).children(recursive=True)
        return []


class Driver:
    """A driver at work."""

    def __init__(self, world: SparkWorld, pid: int) -> None:
        self._world = world
        self.pid = pid
        self.code: int | None = None

    def ended(self, within_s: float) -> bool:
        """Return True if it has ended, or ends within a time."""
        if self.code is None:
            answer = self._world.answer(within_s)
            self.code = None if answer is None else answer["code"]
        return self.code is not None

    def wait(self) -> int:
        """Its exit code: 0 if the pipeline has run to its end, -9 if it was killed."""
        if not self.ended(_LONGEST_S):
            with suppress(psutil.NoSuchProcess):
                psutil.Process(self.pid).kill()
            self._world.end()  # nobody needs its exit code, or what it left in the JVM
            raise AssertionError(f"a driver does not end; see {self._world.log}")
        assert self.code is not None
        return self.code


def _command(process: psutil.Process) -> str:
    with suppress(psutil.Error):
        return " ".join(process.cmdline())
    return ""


def _is_worker(process: psutil.Process) -> bool:
    """Workers are forks of the daemon, which is a child of a JVM."""
    with suppress(psutil.Error):
        parent = process.parent()
        return parent is not None and "pyspark.daemon" in _command(parent)
    return False
