"""BackgroundWork: calls that are made one after the other in a thread, while the caller goes on."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any


class BackgroundWork:
    """Makes calls in their order. At most ``waiting`` of them have not begun, so that what they hold stays small.

    An error of a call is raised by the next `submit` or `wait`; calls behind it are still made. There is one thread,
    from the first call on until `end`.

    >>> work, done = BackgroundWork(), []
    >>> work.submit(done.append, 1)
    >>> work.submit(done.append, 2)
    >>> work.wait()
    >>> done
    [1, 2]
    >>> work.end()
    """

    def __init__(self, waiting: int = 1) -> None:
        self._waiting = waiting
        self._pool: ThreadPoolExecutor | None = None
        self._calls: deque[Future[Any]] = deque()

    def submit(self, call: Callable[..., object], *arguments: object) -> None:
        """Let a call be made; waits while too many others have yet to be."""
        while len(self._calls) > self._waiting or (self._calls and self._calls[0].done()):
            self._calls.popleft().result()
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, thread_name_prefix="semistream-background")
        self._calls.append(self._pool.submit(call, *arguments))

    def wait(self) -> None:
        """Wait for all calls; the first error of one is raised."""
        while self._calls:
            self._calls.popleft().result()

    def end(self) -> None:
        """Wait for all calls, whatever becomes of them, and let the thread end."""
        wait(self._calls)
        self._calls.clear()
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None
