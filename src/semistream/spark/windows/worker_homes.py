"""Homes of a window join's operators: each operator lives in one Python worker, which serves it to the others.

Spark gives a task any idle worker, so the next micro-batch of a key partition often runs in a worker without its
operator. Rebuilding the operator from the log takes time proportional to its window; sending the rows to the worker
that has it takes time proportional to the rows. A worker that builds an operator therefore serves it to the other
workers of its executor, on a socket named by query and partition.

All of this is soft state. An operator is used only if its stamp equals the one in the state store, one that fails
half-way is never used again, and a lost one is rebuilt from the log.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
from collections import OrderedDict
from collections.abc import Generator
from contextlib import suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, answer_challenge, deliver_challenge
from threading import Lock, Thread

from semistream.errors import JoinFailed
from semistream.spark.windows.packed_rows import write_message
from semistream.spark.windows.partition_join import BySide, KeptJoin
from semistream.spark.windows.state_log import LogEntry, LogHeader, WindowLog
from semistream.spark.windows.window_metrics import partition_counts
from semistream.spark.windows.window_plan import WindowPlan

_LOG = logging.getLogger(__name__)
_END = b""
_SERVED = sys.platform == "linux"  # abstract sockets: not in the file system, and gone with their process


@dataclass(frozen=True)
class Turn:
    """Request to an operator: apply a micro-batch's ``entry``, adopt the ``stamp``, and take a ``snapshot`` if True."""

    entry: LogEntry
    number: int
    stamp: str
    snapshot: bool


@dataclass(frozen=True)
class TurnOutcome:
    """Outcome of a turn besides its results: counts, late and departed rows, and the snapshot if requested."""

    counts: dict[str, int]
    missing_estimate: float | None
    late: BySide
    departed: BySide
    snapshot: bytes | None
    restored: bool = False


Results = Generator[bytes, None, TurnOutcome]


class JoinHome:
    """Home of one operator, which serves it to other workers at ``address``, unless the address is in use."""

    def __init__(self, kept: KeptJoin, address: str, secret: bytes) -> None:
        self._kept: KeptJoin | None = kept
        self._lock = Lock()
        self._secret = secret
        self._socket: socket.socket | None = None
        if _SERVED:
            listening = socket.socket(socket.AF_UNIX)
            try:
                listening.bind(address)
                listening.listen()
            except OSError:  # held by an outdated operator that is not closed yet
                listening.close()
                _LOG.debug("%r is in use; this operator is not served to other workers", address)
            else:
                self._socket = listening
                Thread(target=self._serve, args=(listening,), daemon=True).start()

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
        listening, self._socket = self._socket, None
        if listening is not None:
            with suppress(OSError):
                listening.shutdown(socket.SHUT_RDWR)  # otherwise the waiting thread would keep the address in use
            listening.close()

    def _serve(self, listening: socket.socket) -> None:
        while True:
            try:
                connected = listening.accept()[0]
            except OSError:
                return  # closed
            with suppress(EOFError, AuthenticationError, OSError), Connection(connected.detach()) as asking:
                # Fails if the asking worker has died, or does not know the secret.
                deliver_challenge(asking, self._secret)
                answer_challenge(asking, self._secret)
                if not self._answer(asking):
                    self.close()

    def _answer(self, asking: Connection) -> bool:
        """Run a turn for another worker; return False if the operator is unusable afterwards."""
        stamp, number = asking.recv()
        known = self.has(stamp, number)
        asking.send(known)
        if not known:
            return False
        results = self.run(asking.recv())
        try:
            while True:
                try:
                    asking.send_bytes(next(results))
                except StopIteration as end:
                    asking.send_bytes(_END)
                    asking.send(end.value)
                    return True
        except Exception as error:
            results.close()
            told = f"{type(error).__name__}: {error}"  # as text: not every error can be pickled
            _LOG.warning("the operator of a key partition failed and is dropped: %s", told)
            asking.send_bytes(_END)
            asking.send(told)
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
        if home is None and _SERVED and header.stamp and (worker := _reached(address, plan.secret, header)):
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


def _reached(address: str, secret: bytes, header: LogHeader) -> Connection | None:
    """Connect to the worker that has the operator in the header's state; None if there is none."""
    try:
        worker = Client(address, "AF_UNIX", authkey=secret)
        worker.send((header.stamp, header.next))
        if worker.recv():
            return worker
        worker.close()
    except (OSError, EOFError, AuthenticationError):
        pass
    return None


def _asked(worker: Connection, turn: Turn) -> Results:
    with worker:
        worker.send(turn)
        try:
            while message := worker.recv_bytes():
                yield message
            outcome = worker.recv()
        except (EOFError, ConnectionError) as error:
            raise JoinFailed(
                "the worker that had the operator of a key partition has died. Run the task again: the operator is "
                "rebuilt from the state store."
            ) from error
    if not isinstance(outcome, TurnOutcome):
        raise JoinFailed(f"the worker that has the operator of a key partition could not join: {outcome}")
    return outcome
