"""Which machine this is, and which disk holds a path: what a measurement is true of.

How much memory a system has to hold pages of files in, beside what its processes use.
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

MACHINE_ID = Path("/etc/machine-id")
CPU_INFO = Path("/proc/cpuinfo")
MOUNTS = Path("/proc/self/mountinfo")
UUIDS = Path("/dev/disk/by-uuid")
_ESCAPED = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True)
class MachineIdentity:
    """A machine as far as measurements go: ``host`` tells it from others, and these are its processor and cores.

    The same host may get another processor or other cores: a virtual machine is moved or resized, an image is started
    on many. So what is kept for a host is checked for the rest.
    """

    host: str
    processor: str
    cores: int

    @classmethod
    def here(cls) -> MachineIdentity:
        """This machine.

        ``host`` is a hash of the machine's id, which is not to be given away, or of its name where there is none.
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
    """A line of the mount table."""

    device: str  # major:minor
    point: PurePosixPath
    kind: str
    source: str


def folder_on_disk(path: Path | str) -> Path:
    """The folder at a path or around it, with no link in between: it lies on the disk that the path is on."""
    resolved = Path(path).resolve()
    if not resolved.exists():
        raise InvalidArgument(f"{str(path)!r} does not exist; name a folder or a file on the disk that holds R.")
    return resolved if resolved.is_dir() else resolved.parent


def disk_identity(path: Path | str) -> str:
    """The disk that holds a path, by what stays the same when the machine is started again.

    That is the file system's uuid if it is known, else what is mounted, with the place if that is no device and no
    share. Where there is no mount table it is the number of the device.
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
    """Twelve digits that tell texts apart."""
    return hashlib.sha256(f"semistream {text}".encode()).hexdigest()[:12]


def _processor() -> str:
    """The processor's name, or at least its kind."""
    try:
        found = re.search(r"^model name\s*:\s*(\S.*)$", CPU_INFO.read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found[1].strip() if found else platform.processor() or platform.machine()


def _mount_of(folder: Path, number: int) -> _Mount | None:
    """What is mounted around a folder: by its device, unless that is in no mount table, as with btrfs."""
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
    """Spaces and the like stand as octal numbers in the mount table."""
    return _ESCAPED.sub(lambda found: chr(int(found[1], 8)), text)


def _uuid(number: int, source: str) -> str | None:
    """The uuid of a device, by its number or that of what is mounted."""
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
_UNIT = 1024  # "kB"


def page_cache_bytes() -> int:
    """The memory that the system could give to pages of files now, those that it holds already among it.

    0 where it does not tell: then every page is taken to be read from the disk.
    """
    try:
        lines = MEMORY.read_text().splitlines()
    except OSError:
        return 0
    found = (line.split()[1] for line in lines if line.startswith(_AVAILABLE))
    return int(next(found, 0)) * _UNIT
