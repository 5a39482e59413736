"""Named points of the ledger's protocol at which a test kills the process, or a simulation acts."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

VARIABLE = "SEMISTREAM_FAULT"
"""Environment variable with a point and how often to pass it before the kill: ``"after prepared@2"``.

``"before commit of joined@0~3"`` waits three seconds at the point first, so that other threads and Spark go on.
``"*@17"`` counts all points.
"""

_passed: dict[str, int] = {}


def reached(point: str) -> None:
    """Tell `handler` that the protocol has reached a point."""
    handler(point)


def kill_if_named(point: str) -> None:
    """Kill this process, without any clean-up, as a power cut would, if the environment names this point."""
    wanted = os.environ.get(VARIABLE)
    if not wanted:
        return
    name, _, times = wanted.partition("@")
    times, _, wait_s = times.partition("~")
    if name not in (point, "*"):
        return
    _passed[name] = _passed.get(name, 0) + 1
    if _passed[name] > int(times or 0):
        time.sleep(float(wait_s or 0))
        os.kill(os.getpid(), signal.SIGKILL)


handler: Callable[[str], None] = kill_if_named
"""Called at each point."""
