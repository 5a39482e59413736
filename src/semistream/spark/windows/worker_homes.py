"""Homes of a window join's operators: each operator lives in one Python worker, which serves it to the others.

Spark gives a task any idle worker, so the next micro-batch of a key partition often runs in a worker without its
operator. Rebuilding the operator from the log takes time proportional to its window; sending the rows to the worker
that has it takes time proportional to the rows. A worker that builds an operator therefore serves it to the other
workers of its executor, on a socket named by query and partition.

All of this is soft state. An operator is used only if its stamp equals the one in the state store, one that fails
half-way is never used again, and a lost one is rebuilt from the log.
"""

from __future__ import annotations

import json
import logging
import os
from collections import OrderedDict
from collections.abc import Generator
from dataclasses import dataclass, replace
from hashlib import sha256
from threading import Lock

import pyarrow as pa

from semistream.errors import JoinFailed
from semistream.spark.windows.packed_rows import read_message, write_message
from semistream.spark.windows.partition_join import BySide, KeptJoin
from semistream.spark.windows.state_log import LogEntry, LogHeader, WindowLog
from semistream.spark.windows.window_metrics import partition_counts
from semistream.spark.windows.window_plan import WindowPlan
from semistream.spark.windows.worker_sockets import SERVED, WorkerListener, WorkerSocket

_LOG = logging.getLogger(__name__)
_END, _KNOWN = b"", b"known"
_NOT_OURS = (ValueError, KeyError, TypeError, pa.ArrowException)  # of a message that no worker of ours sends


@dataclass(frozen=True)
class Turn:
    """Request to an operator: apply a micro-batch's ``entry``, adopt the ``stamp``, and take a ``snapshot`` if True."""

    entry: LogEntry
    number: int
    stamp: str
    snapshot: bool

    def send(self, to: WorkerSocket) -> None:
        """Send the turn to the worker that has the operator."""
        about = {"number": self.number, "stamp": self.stamp, "snapshot": self.snapshot, "before": self.entry.before}
        sides = [side for side, _ in self.entry.rows]
        to.send(json.dumps({**about, "watermark_ms": self.entry.watermark_ms, "sides": sides}).encode())
        for _, content in self.entry.rows:
            to.send(content)

    @classmethod
    def receive(cls, sender: WorkerSocket) -> Turn:
        """Receive a turn that `send` has sent."""
        about = json.loads(sender.receive())
        rows = [(int(side), sender.receive()) for side in about["sides"]]
        entry = LogEntry(rows, int(about["watermark_ms"]), str(about["before"]))
        return cls(entry, int(about["number"]), str(about["stamp"]), bool(about["snapshot"]))


@dataclass(frozen=True)
class TurnOutcome:
    """Outcome of a turn besides its results: counts, late and departed rows, and the snapshot if requested."""

    counts: dict[str, int]
    missing_estimate: float | None
    late: BySide
    departed: BySide
    snapshot: bytes | None
    restored: bool = False

    def send(self, to: WorkerSocket) -> None:
        """Send the outcome to the worker that has asked for the turn."""
        parts = [*self.late, *self.departed]
        about = {"counts": self.counts, "missing_estimate": self.missing_estimate, "parts": list(map(len, parts))}
        to.send(json.dumps({**about, "has_snapshot": self.snapshot is not None}).encode())
        for batch in (batch for part in parts for batch in part):
            to.send(write_message(batch))
        if self.snapshot is not None:
            to.send(self.snapshot)

    @classmethod
    def receive(cls, sender: WorkerSocket) -> TurnOutcome:
        """Receive an outcome that `send` has sent; raise `JoinFailed` if the turn has failed instead."""
        about = json.loads(sender.receive())
        if "failed" in about:
            raise JoinFailed(f"the worker that has the operator of a key partition could not join: {about['failed']}")
        left, right, *departed = [[read_message(sender.receive()) for _ in range(n)] for n in about["parts"]]
        snapshot = sender.receive() if about["has_snapshot"] else None
        counts, estimate = {name: int(count) for name, count in about["counts"].items()}, about["missing_estimate"]
        return cls(counts, estimate, (left, right), (departed[0], departed[1]), snapshot)


Results = Generator[bytes, None, TurnOutcome]


class JoinHome:
    """Home of one operator, which serves it to other workers at ``address``, unless the address is in use."""

    def __init__(self, kept: KeptJoin, address: str, secret: bytes) -> None:
        self._kept: KeptJoin | None = kept
        self._lock, self._answering = Lock(), Lock()
        self._listener: WorkerListener | None = None
        if SERVED:
            try:
                self._listener = WorkerListener(address, secret, self._answer)
            except OSError:  # held by an outdated operator that is not closed yet, or by another user
                _LOG.debug("%r is in use; this operator is not served to other workers", address)

    def has(self, stamp: str, number: int) -> bool:
        """True if the operator has this stamp and this next entry."""
        return self._kept is not None and self._kept.stands_at(stamp, number)

    def run(self, turn: Turn) -> Results:
        """Run a turn: yield packed results, return the outcome. Unless consumed to the end, the operator is lost."""
        with self._lock:
            kept, self._kept = self._kept, None
            if kept is None or not kept.stands_at(turn.entry.before, turn.number):
                raise JoinFailed("a key partition's operator is not in the state its task expects. Run the task again.")
            before = kept.stats()
            for results in kept.apply(turn.entry):
                yield write_message(results)
            late, departed = kept.take_late(), kept.take_departed()
            kept.stamp, kept.next = turn.stamp, turn.number + 1
            snapshot = kept.written() if turn.snapshot else None
            after = kept.stats()
            self._kept = kept
            return TurnOutcome(partition_counts(before, after), after.missing_estimate, late, departed, snapshot)

    def close(self) -> None:
        """Drop the operator, and stop serving it."""
        self._kept = None
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()

    def _answer(self, asking: WorkerSocket) -> None:
        """Run a turn for another worker, one after the other; close if the operator is unusable afterwards."""
        with self._answering:
            if not self._run_for(asking):
                self.close()

    def _run_for(self, asking: WorkerSocket) -> bool:
        """Run a turn for another worker; return False if the operator is unusable afterwards."""
        about = json.loads(asking.receive())
        known = self.has(str(about["stamp"]), int(about["number"]))
        asking.send(_KNOWN if known else _END)
        if not known:
            return False
        results = self.run(Turn.receive(asking))
        try:
            while True:
                try:
                    asking.send(next(results))
                except StopIteration as end:
                    asking.send(_END)
                    end.value.send(asking)
                    return True
        except Exception as error:
            results.close()
            told = f"{type(error).__name__}: {error}"
            _LOG.warning("the operator of a key partition failed and is dropped: %s", told)
            asking.send(_END)
            asking.send(json.dumps({"failed": told}).encode())
            return False


class JoinHomes:
    """Operators of this worker, the most recently used last. Not locked: a worker runs one task at a time."""

    def __init__(self) -> None:
        self._homes: OrderedDict[str, JoinHome] = OrderedDict()

    def run(self, plan: WindowPlan, query: str, group: int, header: LogHeader, log: WindowLog, turn: Turn) -> Results:
        """Run a turn of a partition's operator: here, in the worker that has it, or here, rebuilt from the log."""
        # The address contains the executor's process id and a hash of the driver's secret: others cannot use it.
        known = sha256(plan.secret + query.encode()).hexdigest()[:16]
        address = f"\0semistream-{os.getppid()}-{plan.fingerprint}-{known}-{group}"
        home = self._homes.pop(address, None)
        if home is not None and not home.has(header.stamp, header.next):
            home.close()
            home = None
        if home is None and SERVED and header.stamp and (worker := _reached(address, plan.secret, header)):
            return (yield from _asked(worker, turn))
        restored = home is None and bool(header.stamp)
        if home is None:
            home = JoinHome(KeptJoin.of(plan, header, log), address, plan.secret)
        self._homes[address] = home
        while len(self._homes) > plan.partitions:
            self._homes.popitem(last=False)[1].close()
        outcome = yield from home.run(turn)
        return replace(outcome, restored=restored)


HOMES = JoinHomes()
"""This worker's operators. A global, because of all objects in a worker process only modules outlive its tasks."""


def _reached(address: str, secret: bytes, header: LogHeader) -> WorkerSocket | None:
    """Connect to the worker that has the operator in the header's state; None if there is none."""
    try:
        worker = WorkerSocket.connect(address, secret)
    except OSError:
        return None
    try:
        worker.send(json.dumps({"stamp": header.stamp, "number": header.next}).encode())
        if worker.receive() == _KNOWN:
            return worker
    except OSError:
        pass
    worker.close()
    return None


def _asked(worker: WorkerSocket, turn: Turn) -> Results:
    with worker:
        try:
            turn.send(worker)
            while message := worker.receive():
                yield message
            return TurnOutcome.receive(worker)
        except OSError as error:
            raise JoinFailed(
                "the worker that had the operator of a key partition has died. Run the task again: the operator is "
                "rebuilt from the state store."
            ) from error
        except _NOT_OURS as error:
            raise JoinFailed(
                f"the worker that had the operator of a key partition sent what cannot be read ({error!r}). Run the "
                "task again: the operator is rebuilt from the state store."
            ) from error
