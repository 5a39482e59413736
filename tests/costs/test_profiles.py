"""Profiles load as they were saved; those of another machine, disk or format are refused."""

from __future__ import annotations

import json
import os
import pwd
import tempfile
from collections.abc import Callable
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import platformdirs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from platformdirs.macos import MacOS
from platformdirs.unix import Unix

from semistream import __version__
from semistream.costs import profiles
from semistream.costs.identity import MachineIdentity, disk_identity
from semistream.costs.machine import DEFAULT_MACHINE, Machine, OperatorCosts
from semistream.costs.profiles import cache_folder, load_profile, save_profile, stored_profile
from semistream.errors import CalibrationError, ProfileRefused
from semistream.kernels.compiler.store import KernelStore
from semistream.relation import DiskCosts

MACHINE = Machine("this one", DiskCosts(1e-4, 3e-10), {"mesh": OperatorCosts(9e-8, 1e-8)})


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("SEMISTREAM_CACHE", str(folder))
    return folder


def test_without_a_profile_there_is_none(tmp_path: Path, cache: Path) -> None:
    assert load_profile(tmp_path) is None
    assert not cache.exists()


seconds = st.floats(0, 1e3)
machines = st.builds(
    Machine,
    st.text(),
    st.builds(DiskCosts, seconds, seconds, seconds),
    st.dictionaries(
        st.text(), st.builds(OperatorCosts, **{field.name: seconds for field in fields(OperatorCosts)}), max_size=3
    ),
    at_once=st.floats(0.1, 100),
    page_cache_bytes=st.floats(0, 1e15),
)


@given(machine=machines)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30, deadline=None)
def test_a_machine_comes_back_as_it_was_kept(tmp_path: Path, machine: Machine) -> None:
    save_profile(machine, tmp_path)
    assert load_profile(tmp_path) == machine


def test_a_profile_says_what_it_was_measured_on_and_when(tmp_path: Path, cache: Path) -> None:
    file, profile = save_profile(MACHINE, tmp_path, now=datetime(2026, 2, 3, 4, 5, 6, tzinfo=UTC))
    assert file.parent == cache
    assert stored_profile(tmp_path) == profile
    assert (profile.measured_at, profile.semistream) == ("2026-02-03T04:05:06+00:00", __version__)
    assert (profile.measured_on, profile.disk) == (MachineIdentity.here(), disk_identity(tmp_path))


def test_every_disk_and_every_host_has_a_profile_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Machines that share a home folder do not disturb each other."""
    files = set()
    for host in ("one", "two"):
        monkeypatch.setattr(MachineIdentity, "here", lambda host=host: MachineIdentity(host, "a processor", 2))
        for disk in ("ext4 /dev/vda", "xfs /dev/vdb"):
            monkeypatch.setattr(profiles, "disk_identity", lambda path, disk=disk: disk)
            assert load_profile(tmp_path) is None
            files.add(save_profile(Machine(host + disk, DiskCosts(1e-3)), tmp_path)[0])
            assert load_profile(tmp_path) == Machine(host + disk, DiskCosts(1e-3))
    assert len(files) == 4


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda p: p.update(format=7), "has format version 7, but here it is 8"),
        (lambda p: p.pop("format"), "has format version None, but here it is 8"),
        (lambda p: p["measured_on"].update(processor="another"), "has processor 'another', but here it is '"),
        (lambda p: p["measured_on"].update(cores=640), "has cores 640, but here it is "),
        (lambda p: p["measured_on"].update(host="another"), "has host 'another', but here it is '"),
        (lambda p: p.update(disk="ext9 /dev/other"), "has disk 'ext9 /dev/other', but here it is '"),
        (lambda p: p.pop("machine"), "is damaged"),
        (lambda p: p["machine"]["operators"]["mesh"].pop("row_s"), r"is damaged \(KeyError: 'row_s'\)"),
        (lambda p: p["machine"]["disk"].update(seek_s=-1), r"is damaged \(InvalidArgument"),
        (lambda p: p["machine"]["operators"]["mesh"].update(row_s=float("nan")), "is damaged.*row_s is nan"),
        (lambda p: p["machine"]["operators"]["mesh"].update(tuple_s="soon"), "is damaged"),
        (lambda p: p["machine"].update(operators=[]), "is damaged"),
        (lambda p: p["measured_on"].pop("cores"), "is damaged"),
    ],
)
def test_a_profile_of_another_machine_is_refused(
    tmp_path: Path, change: Callable[[dict[str, Any]], object], message: str
) -> None:
    file, _ = save_profile(MACHINE, tmp_path)
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))
    with pytest.raises(ProfileRefused, match=message) as refusal:
        load_profile(tmp_path)
    assert str(file) in str(refusal.value)
    assert f"semistream calibrate --on {tmp_path}" in str(refusal.value)
    save_profile(MACHINE, tmp_path)
    assert load_profile(tmp_path) == MACHINE


def test_a_truncated_profile_is_refused(tmp_path: Path) -> None:
    file, _ = save_profile(MACHINE, tmp_path)
    content = file.read_bytes()
    for length in range(len(content.rstrip())):
        file.write_bytes(content[:length])
        with pytest.raises(ProfileRefused, match="is damaged"):
            load_profile(tmp_path)


@pytest.mark.parametrize("content", [b"[]", b"1", b"null", b"\xff\xfe\x00"])
def test_other_files_than_profiles_are_refused(tmp_path: Path, content: bytes) -> None:
    file, _ = save_profile(MACHINE, tmp_path)
    file.write_bytes(content)
    with pytest.raises(ProfileRefused, match="is damaged"):
        load_profile(tmp_path)


def test_a_profile_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    file, _ = save_profile(MACHINE, tmp_path)
    file.unlink()
    file.mkdir()
    with pytest.raises(ProfileRefused, match=r"cannot be read \(Is a directory\)"):
        load_profile(tmp_path)


def test_a_write_that_fails_leaves_the_old_profile(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_profile(MACHINE, tmp_path)

    def fail(descriptor: int) -> None:
        raise OSError("the disk is gone")

    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", fail)
        with pytest.raises(OSError, match="the disk is gone"):
            save_profile(DEFAULT_MACHINE, tmp_path)
    assert load_profile(tmp_path) == MACHINE
    assert len(list(cache.iterdir())) == 1


def test_the_cache_folder_follows_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "cache"
    for unset in (lambda: monkeypatch.delenv("SEMISTREAM_CACHE"), lambda: monkeypatch.setenv("SEMISTREAM_CACHE", "")):
        unset()
        assert cache_folder() == tmp_path / "xdg" / "semistream"
    for system, folder in ((Unix, ".cache"), (MacOS, "Library/Caches")):
        monkeypatch.setattr(platformdirs, "PlatformDirs", system)
        monkeypatch.setenv("XDG_CACHE_HOME", "not/absolute")
        assert cache_folder() == tmp_path / "home" / folder / "semistream"
        monkeypatch.delenv("XDG_CACHE_HOME")
        assert cache_folder() == tmp_path / "home" / folder / "semistream"


def test_without_a_home_there_is_no_profile_and_the_variable_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("SEMISTREAM_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(pwd, "getpwuid", dict[int, str]().__getitem__)
    assert load_profile(tmp_path) is None
    with pytest.raises(CalibrationError, match="set SEMISTREAM_CACHE"):
        save_profile(MACHINE, tmp_path)


def test_a_cache_folder_that_cannot_be_made_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("SEMISTREAM_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(CalibrationError, match=r"cannot be stored in .*Not a directory.*set SEMISTREAM_CACHE"):
        save_profile(MACHINE, tmp_path)


def test_the_defaults_are_those_of_a_solid_state_disk() -> None:
    assert DEFAULT_MACHINE.name == "defaults"
    assert 1e-5 < DEFAULT_MACHINE.disk.seek_s < 1e-3
    assert {"engine", "sweep", "mesh"} <= set(DEFAULT_MACHINE.operators)


def test_without_a_home_kernels_are_kept_in_a_private_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless(*_: object, **__: object) -> Path:
        raise RuntimeError("could not determine the home directory")

    monkeypatch.setattr(platformdirs, "user_cache_path", homeless)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.delenv("SEMISTREAM_KERNELS", raising=False)
    assert KernelStore().folder.is_relative_to(tmp_path)
    monkeypatch.setattr(platformdirs, "user_cache_path", lambda *_, **__: Path("~/.cache"))
    assert KernelStore().folder.is_relative_to(tmp_path)
