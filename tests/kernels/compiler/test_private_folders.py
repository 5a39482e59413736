"""Compiled code is run: folders that another user could put files into are not used for it."""

from __future__ import annotations

import os
import pickle
import zlib
from pathlib import Path

import pytest

from semistream.kernels.compiler.store import KernelStore, _is_private

pytestmark = pytest.mark.skipif(not hasattr(os, "getuid"), reason="a system without users")


def folder(at: Path, mode: int = 0o700) -> Path:
    at.mkdir(parents=True)
    at.chmod(mode)
    return at


def test_a_folder_is_private_if_nobody_else_can_write_to_it_or_replace_it(tmp_path):
    assert _is_private(folder(tmp_path / "own"))
    for mode in (0o770, 0o777, 0o1777):
        assert not _is_private(folder(tmp_path / f"{mode:o}", mode))
    assert not _is_private(folder(folder(tmp_path / "open", 0o777) / "kernels"))
    assert _is_private(folder(folder(tmp_path / "sticky", 0o1777) / "kernels"))
    assert _is_private(folder(folder(tmp_path / "group", 0o775) / "kernels"))


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="only root can give a folder away")
def test_a_folder_below_one_of_another_user_is_not_private(tmp_path):
    theirs = folder(tmp_path / "theirs", 0o755)
    own = folder(theirs / "kernels")
    assert _is_private(own)
    os.chown(theirs, 1234, 1234)
    assert not _is_private(own)
    assert not _is_private(theirs)


def test_a_link_is_judged_by_where_it_leads(tmp_path):
    (tmp_path / "link").symlink_to(folder(folder(tmp_path / "open", 0o777) / "kernels"))
    assert not _is_private(tmp_path / "link")


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder(tmp_path / "cache")))
    monkeypatch.setattr("semistream.kernels.compiler.store.user_cache", lambda: tmp_path / "cache" / "semistream")
    return tmp_path / "cache"


def test_a_named_folder_that_all_can_write_to_is_neither_read_nor_written(tmp_path, monkeypatch, cache, caplog):
    named = folder(tmp_path / "named", 0o755)
    monkeypatch.setenv("SEMISTREAM_KERNELS", str(named))
    KernelStore().write("x86/one", b"[]", zlib.compress(pickle.dumps("code")))
    assert [*KernelStore().read("x86/one")]
    named.chmod(0o777)
    store = KernelStore()
    assert not [*store.read("x86/one")]
    assert store.folder == cache / "semistream" / "kernels"
    assert f"{named} is not this user's own folder" in caplog.text


def test_what_is_kept_is_this_users_alone_whatever_the_mask(cache):
    before = os.umask(0)
    try:
        store = KernelStore()
        store.write("x86/one", b"[]", b"code")
        with store.lock("one"):
            modes = {
                path.relative_to(store.folder).as_posix(): path.stat().st_mode & 0o777
                for path in store.folder.rglob("*")
            }
    finally:
        os.umask(before)
    assert store.folder.stat().st_mode & 0o777 == 0o700
    del modes["locks/one"]  # as the mask allows, within a folder of this user alone
    assert modes == {"x86": 0o700, "x86/one": 0o600, "locks": 0o700}
