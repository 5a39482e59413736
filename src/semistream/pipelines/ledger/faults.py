"""Named points of the ledger's protocol at which a test lets the process die."""

from __future__ import annotations

import os
import signal

VARIABLE = "SEMISTREAM_FAULT"
"""The environment variable that names a point and how often it is passed before: ``"after prepared@2"``."""

_passed: dict[str, int] = {}


def reached(point: str) -> None:
    """Kill this process if the environment says so for this point: as a power cut would, without any clean-up."""
    wanted = os.environ.get(VARIABLE)
    if not wanted:
        return
    name, _, times = wanted.partition("@")
    if name != point:
        return
    _passed[point] = _passed.get(point, 0) + 1
    if _passed[point] > int(times or 0):
        os.kill(os.getpid(), signal.SIGKILL)
