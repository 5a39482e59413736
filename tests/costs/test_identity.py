"""Identity of the machine and the disk, from made-up tables of the system and from those of this one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from semistream.costs import identity
from semistream.costs.identity import MachineIdentity, disk_identity, folder_on_disk
from semistream.errors import InvalidArgument

UUID = "1b9f1f2e-7d0c-4e0f-9f5e-000000000001"


@pytest.fixture
def device(tmp_path: Path) -> str:
    number = tmp_path.stat().st_dev
    return f"{os.major(number)}:{os.minor(number)}"


def mounts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *lines: str) -> None:
    table = tmp_path / "mountinfo"
    table.write_text("".join(f"{line}\n" for line in lines))
    monkeypatch.setattr(identity, "MOUNTS", table)
    monkeypatch.setattr(identity, "UUIDS", tmp_path / "by-uuid")


def test_a_disk_is_what_is_mounted(tmp_path: Path, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    root = "27 1 254:99 / / rw,relatime - ext4 /dev/vda rw"
    mounts(monkeypatch, tmp_path, root, f"28 27 {device} / {tmp_path} rw shared:1 master:2 - xfs /dev/vdb rw")
    assert disk_identity(tmp_path) == "xfs /dev/vdb"


def test_the_device_decides_where_another_is_mounted_at_the_same_place(
    tmp_path: Path, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, other = (
        f"28 27 {number} / {tmp_path} rw - xfs /dev/{name} rw" for number, name in ((device, "vdb"), ("0:77", "x"))
    )
    mounts(monkeypatch, tmp_path, other, ours, other)
    assert disk_identity(tmp_path) == "xfs /dev/vdb"


def test_a_device_in_no_table_is_found_by_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, here = "27 1 254:99 / / rw - ext4 /dev/vda rw", f"28 27 0:99 /sub {tmp_path} rw - btrfs /dev/vdc rw"
    mounts(monkeypatch, tmp_path, here, root)
    assert disk_identity(tmp_path) == "btrfs /dev/vdc"


def test_the_uuid_of_a_file_system_outlives_the_name_of_its_device(
    tmp_path: Path, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts(monkeypatch, tmp_path, f"28 27 {device} / / rw - ext4 /dev/root rw")
    (tmp_path / "by-uuid").mkdir()
    (tmp_path / "by-uuid" / UUID).touch()
    (tmp_path / "by-uuid" / "gone").symlink_to(tmp_path / "nowhere")
    monkeypatch.setattr(identity, "_device_number", lambda link: tmp_path.stat().st_dev if link.name == UUID else None)
    assert disk_identity(tmp_path) == f"ext4 {UUID}"


def test_a_file_system_without_a_device_is_told_by_its_place(
    tmp_path: Path, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "a place"
    place.mkdir()
    escaped = str(place).replace(" ", r"\040")
    mounts(monkeypatch, tmp_path, f"28 27 {device} / {escaped} rw - tmpfs tmpfs rw")
    assert disk_identity(place) == f"tmpfs at {place}"
    mounts(monkeypatch, tmp_path, f"28 27 {device} / {escaped} rw - nfs4 server:/export rw")
    assert disk_identity(place) == "nfs4 server:/export"


def test_without_a_mount_table_it_is_the_number_of_the_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "MOUNTS", tmp_path / "none")
    assert disk_identity(tmp_path) == f"device {tmp_path.stat().st_dev}"


def test_a_file_a_link_and_a_folder_are_on_one_disk(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "folder" / "file")
    folder = (tmp_path / "folder").resolve()
    assert folder_on_disk(folder) == folder_on_disk(folder / "file") == folder_on_disk(tmp_path / "link") == folder
    assert disk_identity(tmp_path) == disk_identity(tmp_path / "link") == disk_identity(str(tmp_path))


def test_a_path_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match=r"nowhere' does not exist; name a folder or a file on the disk"):
        disk_identity(tmp_path / "nowhere")


def test_a_machine_is_known_by_its_id_and_does_not_give_it_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "id").write_text("3d1219c7\n")
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nmodel name\t: A Processor @ 2 GHz\n")
    monkeypatch.setattr(identity, "MACHINE_ID", tmp_path / "id")
    monkeypatch.setattr(identity, "CPU_INFO", tmp_path / "cpuinfo")
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    here = MachineIdentity.here()
    assert here == MachineIdentity.here()
    assert (here.processor, here.cores, str(here)) == ("A Processor @ 2 GHz", 8, "A Processor @ 2 GHz, 8 cores")
    assert "3d1219c7" not in here.host
    (tmp_path / "id").write_text("3d1219c8\n")
    assert MachineIdentity.here().host != here.host


def test_a_machine_without_an_id_is_known_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "MACHINE_ID", tmp_path / "none")
    monkeypatch.setattr(identity, "CPU_INFO", tmp_path / "none")
    hosts = set()
    for name in ("one", "two"):
        monkeypatch.setattr("platform.node", lambda name=name: name)
        here = MachineIdentity.here()
        hosts.add(here.host)
        assert here.processor
    assert len(hosts) == 2
