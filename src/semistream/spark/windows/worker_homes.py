"""Where the operators of a window join live: each in one Python worker, which the others of the executor ask to join.

Spark gives a task any idle worker, so that the next micro-batch of a key partition often comes to a worker that does
not have its operator. To make it again from the log takes as long as its window is large; to send the rows to the
worker that has it takes as long as they are many. So a worker that makes an operator serves it to the others, on a
socket that is known by the names of query and partition.

All this is soft: an operator is used only if its stamp is the one that the state store has, one that fails half-way is
never used again, and one that is lost is made from the log.
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
_SERVED = sys.platform == "linux"  # sockets whose names are in no folder, and vanish with their process


@dataclass(frozen=True)
class Turn:
    """What a micro-batch asks of an operator: to take in an entry, to bear a new stamp, and to write itself down."""

    entry: LogEntry
    number: int
    stamp: str
    snapshot: bool


@dataclass(frozen=True)
class Outcome:
    """What came of it besides results: counts, rows that are late or left, and the operator as bytes if asked for."""

    counts: dict[str, int]
    missing_estimate: float | None
    late: BySide
    departed: BySide
    snapshot: bytes | None
    restored: bool = False


Results = Generator[bytes, None, Outcome]


class JoinHome:
    """Holds one operator, and serves it to other workers by ``address``, if that is free."""

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
            except OSError:  # an operator that nobody will use again has not gone yet
                listening.close()
                _LOG.debug("%r is in use: its operator is not served", address)
            else:
                self._socket = listening
                Thread(target=self._serve, args=(listening,), daemon=True).start()

    def has(self, stamp: str, number: int) -> bool:
        """Whether the operator stands there."""
        return self._kept is not None and self._kept.stands_at(stamp, number)

    def run(self, turn: Turn) -> Results:
        """Packed results, one after the other. If that is not consumed to its end the operator is lost."""
        with self._lock:
            kept, self._kept = self._kept, None
            if kept is None or not kept.stands_at(turn.entry.before, turn.number):
                raise JoinFailed("the operator of a key partition has gone on without its task. Start the task again.")
            before = kept.stats()
            for results in kept.apply(turn.entry):
                yield write_message(results)
            late, departed = kept.take_late(), kept.take_departed()
            kept.stamp, kept.next = turn.stamp, turn.number + 1
            snapshot = kept.written() if turn.snapshot else None
            after = kept.stats()
            self._kept = kept
            return Outcome(partition_counts(before, after), after.missing_estimate, late, departed, snapshot)

    def close(self) -> None:
        """Let go of the operator."""
        self._kept = None
        listening, self._socket = self._socket, None
        if listening is not None:
            with suppress(OSError):
                listening.shutdown(socket.SHUT_RDWR)  # else a thread that waits there would keep the name
            listening.close()

    def _serve(self, listening: socket.socket) -> None:
        while True:
            try:
                connected = listening.accept()[0]
            except OSError:
                return  # closed
            with suppress(EOFError, AuthenticationError, OSError), Connection(connected.detach()) as asking:
                # If that fails who asked has died, or is none of us.
                deliver_challenge(asking, self._secret)
                answer_challenge(asking, self._secret)
                if not self._answer(asking):
                    self.close()

    def _answer(self, asking: Connection) -> bool:
        """Do a turn for another worker; false if the operator is of no use any more."""
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
            told = f"{type(error).__name__}: {error}"  # not every error can be sent
            _LOG.warning("an operator was lost: %s", told)
            asking.send_bytes(_END)
            asking.send(told)
            return False


class JoinHomes:
    """The operators of this worker, the one used last at the end. A worker runs one task at a time."""

    def __init__(self) -> None:
        self._homes: OrderedDict[str, JoinHome] = OrderedDict()

    def run(self, plan: WindowPlan, query: str, group: int, header: LogHeader, log: WindowLog, turn: Turn) -> Results:
        """Have the operator of a partition take its turn: here, in the worker that has it, or made from the log."""
        # Of the executor, which has started the workers, and of the driver: others cannot use the operator.
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
"""This worker's operators: a global, because a worker process outlives the tasks it runs, and only a module does."""


def _reached(address: str, secret: bytes, header: LogHeader) -> Connection | None:
    """A line to the worker that has the operator where the header says; None if there is none."""
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
                "the worker that had the operator of a key partition has died. Start the task again: the operator is "
                "made from the state store."
            ) from error
    if not isinstance(outcome, Outcome):
        raise JoinFailed(f"the worker that has the operator of a key partition could not join: {outcome}")
    return outcome
