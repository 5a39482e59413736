"""The recorder sees every change of a folder that strace sees."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

CALLS = "open,openat,creat,rename,renameat,renameat2,unlink,unlinkat,link,linkat,mkdir,mkdirat,rmdir,fsync,fdatasync"
CHILD = """
import json
from tests.crash.cuts import lay_out, scratch
from tests.crash.recorder import Recorder
from tests.crash.scenarios import SCENARIOS

scenario = SCENARIOS["overload-delta"]()
with scratch() as above:
    lay_out(scenario.disk.tree, above / "disk")
    recorder = Recorder(above / "disk", scenario.disk)
    (above / "begins").mkdir()
    with recorder.recording():
        scenario.run(above / "disk", recorder.tell)
    (above / "ends").mkdir()
    print(json.dumps([str(above / "disk"), recorder.calls, sorted(recorder.paths)]))
"""
ESCAPES = re.compile(r".*/_delta_log/\d{20}\.json#1")
"""What delta-rs links to the name of an entry and removes within one call: no scan comes in between."""


def changes(lines, folder):
    """Paths below the folder by the kind of change: made, moved to, removed, synced."""
    found = defaultdict(set)
    for line in lines:
        call = re.match(r"\d+ +(\w+)\((.*)\) += (\d+)", line)
        if call is None or (call[1].startswith("open") and "O_CREAT" not in call[2]):
            continue
        name = call[1].removesuffix("2").removesuffix("at")
        at = [place[1] for place in re.finditer(r"(?:AT_FDCWD|\d+)<(.*?)>", call[2])]
        paths = [path[1] for path in re.finditer(r'"(.*?)"', call[2])] or at[:1]
        paths = [str(Path(at[min(i, len(at) - 1)] if at else "/") / path) for i, path in enumerate(paths)]
        kind = {"rename": "moved", "unlink": "removed", "rmdir": "removed", "fsync": "synced", "fdatasync": "synced"}
        if paths[-1].startswith(f"{folder}/"):
            found[kind.get(name, "made")].add(os.path.relpath(paths[-1], folder))
    return found


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("strace") is None, reason="there is no strace")
def test_nothing_escapes(tmp_path) -> None:
    command = [
        "strace",
        "-f",
        "-qq",
        "--seccomp-bpf",
        "-y",
        "-s",
        "4096",
        "-e",
        f"trace={CALLS}",
        "-o",
        tmp_path / "log",
    ]
    ran = subprocess.run([*command, sys.executable, "-c", CHILD], capture_output=True, text=True, check=False)
    if "seccomp" in ran.stderr or "ptrace" in ran.stderr:
        pytest.skip(f"strace cannot trace here: {ran.stderr[:200]}")
    assert ran.returncode == 0, ran.stderr
    folder, calls, paths = json.loads(ran.stdout.splitlines()[-1])
    lines = (tmp_path / "log").read_text().splitlines()
    begin, end = (next(i for i, line in enumerate(lines) if f'{name}"' in line) for name in ("/begins", "/ends"))
    seen = changes(lines[begin:end], folder)
    assert len(seen["made"]) > 50
    assert not {path for path in seen["made"] - set(paths) if not ESCAPES.fullmatch(path)}
    assert seen["moved"] == {path for name, path in calls if name == "rename"}
    removed = {path for name, path in calls if name == "unlink"}
    assert {path for path in seen["removed"] if not ESCAPES.fullmatch(path)} == removed
    assert seen["synced"] == set(), "nobody syncs past Python"
