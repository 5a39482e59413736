"""Identity of this machine and of the disk that holds a path, and the memory free for the system's page cache.

A measured profile is valid only for the machine and disk it was measured on.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import stat
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from semistream.errors import InvalidArgument
from semistream.storage.disk_errors import disk_errors
from semistream.storage.local_paths import local_path

MACHINE_ID = Path("/etc/machine-id")
CPU_INFO = Path("/proc/cpuinfo")
MOUNTS = Path("/proc/self/mountinfo")
UUIDS = Path("/dev/disk/by-uuid")
_ESCAPED = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True)
class MachineIdentity:
    """A machine as a measurement sees it: a unique ``host``, its processor and its number of cores.

    The same host may get another processor or other cores: a virtual machine is moved or resized, or one image is
    started on many machines. A profile stored for a host is therefore checked for processor and cores too.
    """

    host: str
    processor: str
    cores: int

    @classmethod
    def here(cls) -> MachineIdentity:
        """Identify this machine.

        ``host`` is a hash of the machine id, which must stay confidential, or of the node name if there is no id.
        """
        try:
            own = MACHINE_ID.read_text().strip()
        except OSError:
            own = ""
        return cls(short_hash(own or platform.node()), _processor(), os.cpu_count() or 1)

    def __str__(self) -> str:
        return f"{self.processor}, {self.cores} core{'s' if self.cores > 1 else ''}"


@dataclass(frozen=True)
class _Mount:
    """One line of the mount table."""

    device: str  # major:minor
    point: PurePosixPath
    kind: str
    source: str


def folder_on_disk(path: Path | str) -> Path:
    """Return the folder at ``path``, or the one that contains it, with links resolved: it lies on the same disk."""
    with disk_errors(path, "read"):
        resolved = local_path(path).resolve()
        if not resolved.exists():
            raise InvalidArgument(f"{str(path)!r} does not exist; name a folder or a file on the disk that holds R.")
        return resolved if resolved.is_dir() else resolved.parent


def disk_identity(path: Path | str) -> str:
    """Identify the disk that holds a path by a name that survives a restart of the machine.

    The name contains the file system's UUID if it is known, else the mounted device or share, else the mount point.
    Without a mount table it is the device number.
    """
    folder = folder_on_disk(path)
    number = folder.stat().st_dev
    mount = _mount_of(folder, number)
    if mount is None:
        return f"device {number}"
    if (uuid := _uuid(number, mount.source)) is not None:
        return f"{mount.kind} {uuid}"
    if "/" in mount.source or ":" in mount.source:
        return f"{mount.kind} {mount.source}"
    return f"{mount.kind} at {mount.point}"


def short_hash(text: str) -> str:
    """Return a hash of ``text`` with twelve hexadecimal digits."""
    return hashlib.sha256(f"semistream {text}".encode()).hexdigest()[:12]


def _processor() -> str:
    """Return the name of the processor, or at least its architecture."""
    try:
        found = re.search(r"^model name\s*:\s*(\S.*)$", CPU_INFO.read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found[1].strip() if found else platform.processor() or platform.machine()


def _mount_of(folder: Path, number: int) -> _Mount | None:
    """Find the mount that contains a folder: by its device, or by path if the table lacks the device, as with btrfs."""
    try:
        mounts = [_mount(line) for line in MOUNTS.read_text().splitlines()]
    except OSError:
        return None
    device = f"{os.major(number)}:{os.minor(number)}"
    around = [mount for mount in mounts if folder.is_relative_to(mount.point)]
    of_device = [mount for mount in mounts if mount.device == device]
    candidates = [mount for mount in of_device if mount in around] or of_device or around
    return max(candidates, key=lambda mount: len(mount.point.parts), default=None)


def _mount(line: str) -> _Mount:
    before, _, after = line.partition(" - ")
    words, (kind, source, *_) = before.split(" "), after.split(" ")
    return _Mount(words[2], PurePosixPath(_unescaped(words[4])), kind, _unescaped(source))


def _unescaped(text: str) -> str:
    """Decode the octal escapes that the mount table uses for spaces and the like."""
    return _ESCAPED.sub(lambda found: chr(int(found[1], 8)), text)


def _uuid(number: int, source: str) -> str | None:
    """Find the UUID of a file system by its device number, or by that of the mounted device."""
    numbers = {number}
    try:
        mounted = Path(source).stat()
        if stat.S_ISBLK(mounted.st_mode):
            numbers.add(mounted.st_rdev)
    except (OSError, ValueError):
        pass
    try:
        links = sorted(UUIDS.iterdir())
    except OSError:
        return None
    return next((link.name for link in links if _device_number(link) in numbers), None)


def _device_number(link: Path) -> int | None:
    try:
        return link.stat().st_rdev
    except OSError:
        return None


MEMORY = Path("/proc/meminfo")
_AVAILABLE = "MemAvailable:"
_UNIT = 1024  # bytes; the file calls it "kB"


def page_cache_bytes() -> int:
    """Return the memory the system can use for cached file pages now, including those already cached.

    0 if the system does not report it: the models then assume that every page is read from disk.
    """
    try:
        lines = MEMORY.read_text().splitlines()
    except OSError:
        return 0
    found = (line.split()[1] for line in lines if line.startswith(_AVAILABLE))
    return int(next(found, 0)) * _UNIT
