"""Pins: versions that others still need, so that a vacuum keeps them."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from semistream.storage.disk_errors import disk_errors
from semistream.storage.local_files import make_folder, replace_file

PINS = "pins"
HELD_S = 7 * 86_400.0
"""Seconds after which a pin that was not renewed no longer holds: its owner is gone, and must not block for ever."""


@dataclass(frozen=True)
class Pin:
    """A ``version`` that is not to be removed, and its ``owner`` in words."""

    version: int
    owner: str


def write_pin(folder: Path, name: str, pin: Pin) -> None:
    """Pin a version of the relation in ``folder``, instead of the one that ``name`` has pinned before."""
    make_folder(folder / PINS)
    replace_file(folder / PINS / f"{name}.json", json.dumps(asdict(pin)).encode())


def remove_pin(folder: Path, name: str) -> None:
    """Remove a pin, if it is there."""
    with disk_errors(folder):
        (folder / PINS / f"{name}.json").unlink(missing_ok=True)


def read_pins(folder: Path, now: float) -> list[Pin]:
    """Return the pins that hold at the time ``now``, in seconds."""
    found = []
    for path in sorted((folder / PINS).glob("*.json")):
        try:
            if now - path.stat().st_mtime < HELD_S:
                content = json.loads(path.read_bytes())
                found.append(Pin(int(content["version"]), str(content["owner"])))
        except (FileNotFoundError, ValueError, TypeError, KeyError):  # just removed, or not a pin
            continue
    return found


def remove_old_pins(folder: Path, now: float) -> list[str]:
    """Remove pins that no longer hold, and what dead processes left; return their paths in the folder."""
    removed = []
    for path in sorted((folder / PINS).glob("*")):
        if now - path.stat().st_mtime >= HELD_S:
            path.unlink()
            removed.append(f"{PINS}/{path.name}")
    return removed
