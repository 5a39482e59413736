"""Machine profiles: costs measured on a machine and a disk, stored in the user's cache folder.

Each pair of machine and disk has one file, named by a hash of both. Machines that share a home folder therefore have
separate profiles, and a machine that was never measured has none. A file with the right name may still belong to
another machine: a virtual machine was moved or resized, an image with a fixed machine id was started elsewhere, or the
file was copied by hand. A profile therefore names the machine and disk it was measured on, and is refused if they
differ from the present ones. It is also refused if it has another format version or is damaged.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

from semistream.costs.identity import MachineIdentity, disk_identity, short_hash
from semistream.costs.machine import DEFAULT_MACHINE, Machine, OperatorCosts
from semistream.errors import CalibrationError, ProfileRefused
from semistream.kernels.compiler.user_cache import user_cache
from semistream.relation.read.disk_costs import DiskCosts
from semistream.storage.local_files import replace_file

_LOG = logging.getLogger(__name__)
PROFILE_FORMAT = 8
Costs = TypeVar("Costs", DiskCosts, OperatorCosts)


@dataclass(frozen=True)
class MachineProfile:
    """Costs of a machine, with the machine, disk, time (UTC) and version of semistream they were measured with."""

    machine: Machine
    measured_on: MachineIdentity
    disk: str
    measured_at: str
    semistream: str


def cache_folder() -> Path | None:
    """Return the folder of the profiles; None if the user has no home folder.

    It is ``$SEMISTREAM_CACHE`` if set, else ``semistream`` in the user's cache folder of this system (by platformdirs).
    """
    if own := os.environ.get("SEMISTREAM_CACHE"):
        return Path(own)
    return user_cache()


def writable_cache_folder() -> Path:
    """Return the folder of the profiles, created if missing; raise `CalibrationError` if it is not writable."""
    folder = cache_folder()
    if folder is None:
        raise CalibrationError("there is no home folder to store the profile in; set SEMISTREAM_CACHE to a folder.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(folder, error.strerror) from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise _unwritable(folder, "Permission denied")
    return folder


def profile_name(measured_on: MachineIdentity, disk: str) -> str:
    """Return the file name of a profile, without its extension."""
    return f"profile-{measured_on.host}-{short_hash(disk)}"


def save_profile(machine: Machine, path: Path | str, *, now: datetime | None = None) -> tuple[Path, MachineProfile]:
    """Store the costs of this machine with the disk that holds ``path``; return the file and its content.

    The file atomically replaces an earlier profile: a reader sees the old or the new one, even after a crash.
    """
    profile = MachineProfile(
        machine,
        measured_on=MachineIdentity.here(),
        disk=disk_identity(path),
        measured_at=(now or datetime.now(UTC)).isoformat(timespec="seconds"),
        semistream=version("semistream"),
    )
    file = writable_cache_folder() / f"{profile_name(profile.measured_on, profile.disk)}.json"
    replace_file(file, json.dumps(_as_json(profile), indent=2).encode() + b"\n")
    return file, profile


def load_profile(path: Path | str) -> Machine | None:
    """Return the measured costs of this machine with the disk that holds ``path``; None if there is no profile.

    Raise `ProfileRefused` if the stored profile is damaged or belongs to another machine, disk or format version.
    """
    profile = stored_profile(path)
    return None if profile is None else profile.machine


def stored_profile(path: Path | str) -> MachineProfile | None:
    """Return the whole profile, including when and on what it was measured; otherwise like `load_profile`."""
    here, disk, folder = MachineIdentity.here(), disk_identity(path), cache_folder()
    if folder is None:
        return None
    file = folder / f"{profile_name(here, disk)}.json"
    try:
        content = file.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _refused(file, f"cannot be read ({error.strerror})", path) from error
    found = _parsed(content, file, path)
    _require_same("format version", found.get("format"), PROFILE_FORMAT, file, path)
    try:
        profile = _from_json(found)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise _refused(file, f"is damaged ({type(error).__name__}: {error})", path) from error
    for field in fields(here):
        _require_same(field.name, getattr(profile.measured_on, field.name), getattr(here, field.name), file, path)
    _require_same("disk", profile.disk, disk, file, path)
    return profile


def _as_json(profile: MachineProfile) -> dict[str, Any]:
    machine = profile.machine
    return {
        "format": PROFILE_FORMAT,
        "measured_on": asdict(profile.measured_on),
        "disk": profile.disk,
        "measured_at": profile.measured_at,
        "semistream": profile.semistream,
        "machine": {
            "name": machine.name,
            "disk": asdict(machine.disk),
            "at_once": machine.at_once,
            "page_cache_bytes": machine.page_cache_bytes,
            "operators": {name: asdict(costs) for name, costs in machine.operators.items()},
        },
    }


def _from_json(found: Mapping[str, Any]) -> MachineProfile:
    """Rebuild the profile given to `_as_json`; any other content raises some exception."""
    machine, measured_on = found["machine"], found["measured_on"]
    operators = {str(name): _costs(OperatorCosts, costs) for name, costs in machine["operators"].items()}
    return MachineProfile(
        machine=Machine(
            name=str(machine["name"]),
            disk=_costs(DiskCosts, machine["disk"]),
            operators=operators,
            at_once=float(machine["at_once"]),
            page_cache_bytes=float(machine["page_cache_bytes"]),
        ),
        measured_on=MachineIdentity(**measured_on),
        disk=found["disk"],
        measured_at=found["measured_at"],
        semistream=found["semistream"],
    )


def _costs(kind: type[Costs], found: Mapping[str, Any]) -> Costs:
    """Rebuild costs, and fail if one is missing rather than use its default."""
    return kind(**{each.name: float(found[each.name]) for each in fields(kind)})


def _parsed(content: bytes, file: Path, path: Path | str) -> Mapping[str, Any]:
    try:
        found = json.loads(content)
    except ValueError as error:
        raise _refused(file, f"is damaged ({error})", path) from error
    if not isinstance(found, dict):
        raise _refused(file, f"is damaged (it holds a {type(found).__name__}, not an object)", path)
    return found


def _require_same(what: str, found: object, expected: object, file: Path, path: Path | str) -> None:
    if found != expected:
        raise _refused(file, f"has {what} {found!r}, but here it is {expected!r}", path)


def _refused(file: Path, finding: str, path: Path | str) -> ProfileRefused:
    return ProfileRefused(
        f"the machine profile {file} {finding}. It is not used; measure again with `semistream calibrate --on {path}`, "
        "or remove the file to use default costs."
    )


def _unwritable(folder: Path, why: str | None) -> CalibrationError:
    return CalibrationError(
        f"the profile cannot be stored in {folder} ({why}); set SEMISTREAM_CACHE to a writable folder."
    )


def machine_for(path: Path | str) -> Machine:
    """Return the measured costs of this machine with the disk that holds ``path``, or the defaults.

    A refused profile is logged as a warning and not used.
    """
    try:
        return load_profile(path) or DEFAULT_MACHINE
    except ProfileRefused as refused:
        _warn(str(refused))
        return DEFAULT_MACHINE


@lru_cache(maxsize=64)
def _warn(refused: str) -> None:
    """Log a refusal once, however many joins start."""
    _LOG.warning("%s", refused)
