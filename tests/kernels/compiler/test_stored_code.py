"""Stored machine code: found where it is right, and compiled anew where anything differs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from semistream.kernels.compiler.processor_levels import LEVELS, numba_environment, usable_targets

KERNEL = """
import numpy as np
from semistream.kernels.compiler import kernel, subroutine
{imports}

@subroutine
def squared(x):
    return x * x

@kernel
def total(values, factor):
    sum_ = 0.0
    for value in values:
        sum_ += squared(value) * factor
    return sum_
"""
CALL = """
import json, sys
{before}
from semistream.kernels.compiler.stored_code import compiled_here
import some_kernels, numpy as np
result = some_kernels.total(np.arange(1000.0), 3)
code = some_kernels.total._cache
print(json.dumps([result, compiled_here.kernels, code.cache_path]))
"""
EXPECTED = 3.0 * sum(i * i for i in range(1000))


class Machine:
    """A machine with one kernel of its own and a folder for compiled code."""

    def __init__(self, folder: Path) -> None:
        self.sources, self.store = folder / "sources", folder / "store"
        self.sources.mkdir()
        self.write()

    def write(self, imports: str = "") -> None:
        (self.sources / "some_kernels.py").write_text(KERNEL.format(imports=imports))

    def call(self, before: str = "", **environment: str) -> Any:
        """Call the kernel in a new process; return the result, how many kernels it compiled, and the folder."""
        own = {"PYTHONPATH": str(self.sources), "SEMISTREAM_KERNELS": str(self.store), "PYTHONDONTWRITEBYTECODE": "1"}
        script = [sys.executable, "-W", "ignore", "-c", CALL.format(before=before)]
        own = {**os.environ, **own, **environment}
        ran = subprocess.run(script, check=False, env=own, capture_output=True, text=True)
        assert ran.returncode == 0, ran.stderr
        return json.loads(ran.stdout)

    def compiled(self, before: str = "", **environment: str) -> int:
        result, kernels, _ = self.call(before, **environment)
        assert result == EXPECTED
        return int(kernels)

    def files(self) -> list[Path]:
        return [file for file in self.store.glob("*/*") if file.parent.name != "locks"]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_a_kernel_is_compiled_once(machine: Machine) -> None:
    assert machine.compiled() == 1
    (file,) = machine.files()
    before = file.stat().st_mtime_ns
    assert machine.compiled() == 0
    assert file.stat().st_mtime_ns == before


def test_processes_that_start_together_compile_it_once(machine: Machine) -> None:
    with ThreadPoolExecutor(3) as pool:
        assert sum(pool.map(lambda _: machine.compiled(), range(3))) == 1


def test_its_source_may_be_elsewhere_and_newer(machine: Machine, tmp_path: Path) -> None:
    machine.compiled()
    machine.sources = machine.sources.rename(tmp_path / "elsewhere")
    os.utime(machine.sources / "some_kernels.py")
    assert machine.compiled() == 0


@pytest.mark.parametrize("level", LEVELS)
def test_code_of_a_level_runs_on_every_processor_that_has_it(machine: Machine, level: str) -> None:
    if level not in _levels_here():
        pytest.skip(f"this processor lacks {level}")
    assert machine.compiled(**numba_environment(level)) == 1
    assert [file.parent.name for file in machine.files()] == [level]
    assert machine.compiled() == 0


@pytest.mark.parametrize(("first", "second"), [tuple(LEVELS), tuple(LEVELS)[::-1]])
def test_a_level_is_compiled_though_there_is_code_of_another(machine: Machine, first: str, second: str) -> None:
    if not {first, second}.issubset(_levels_here()):
        pytest.skip("this processor lacks a level")
    assert machine.compiled(**numba_environment(first)) == 1
    assert machine.compiled(**numba_environment(second)) == 1
    assert {file.parent.name for file in machine.files()} == {first, second}


CHANGES: dict[str, Callable[[Machine], dict[str, str]]] = {
    "processor": lambda machine: {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""},
    "python": lambda machine: {"before": "sys.implementation.cache_tag = 'cpython-399'"},
    "numba": lambda machine: {"before": "import numba; numba.__version__ = '99.0'"},
    "llvm": lambda machine: {"before": "import llvmlite; llvmlite.__version__ = '99.0'"},
    "optimisation": lambda machine: {"NUMBA_OPT": "1"},
    "bounds are checked": lambda machine: {"NUMBA_BOUNDSCHECK": "1"},
}


def test_code_for_anything_else_is_not_used(machine: Machine) -> None:
    assert machine.compiled() == 1
    for number, (change, settings) in enumerate(CHANGES.items()):
        assert machine.compiled(**settings(machine)) == 1, change
        assert len(machine.files()) == number + 2, change
    assert machine.compiled() == 0


def test_a_change_in_a_module_that_it_imports_compiles_it_anew(machine: Machine) -> None:
    package = machine.sources / "semistream_parts"
    machine.write(imports="from semistream_parts import constant")
    package.with_suffix(".py").write_text("constant = 1\n")
    assert machine.compiled() == 1
    package.with_suffix(".py").write_text("constant = 2\n")
    assert machine.compiled() == 1


def test_a_damaged_file_is_compiled_anew(machine: Machine) -> None:
    machine.compiled()
    (file,) = machine.files()
    content = file.read_bytes()
    flipped = bytearray(content)
    flipped[len(content) // 2] ^= 1
    for damage in (content[: len(content) // 2], bytes(flipped), b""):
        file.write_bytes(damage)
        assert machine.compiled() == 1
    script = "import sys; from semistream.kernels.compiler.store import STORE\nSTORE.write(sys.argv[1], b'[]', b'?')"
    environment = {**os.environ, "SEMISTREAM_KERNELS": str(machine.store)}
    subprocess.run([sys.executable, "-c", script, f"{file.parent.name}/{file.name}"], env=environment, check=True)
    assert machine.compiled() == 1, "the checksum was right, but not the content"
    assert machine.compiled() == 0


@pytest.mark.parametrize("has_code", [False, True])
def test_without_a_folder_to_write_to_code_is_read_and_new_code_kept_in_a_private_one(
    machine: Machine, tmp_path: Path, has_code: bool
) -> None:
    if has_code:
        machine.compiled()
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    only_there = f"""
import semistream.kernels.compiler.store as store
is_writable = store._is_writable
store._is_writable = lambda folder: folder.is_relative_to({str(temporary)!r}) and is_writable(folder)
"""
    for compiles in (not has_code, False):
        result, kernels, folder = machine.call(only_there, TMPDIR=str(temporary), HOME="/nonexistent")
        assert (result, kernels) == (EXPECTED, compiles)
        assert Path(folder).is_relative_to(temporary)
        assert Path(folder).stat().st_mode & 0o777 == 0o700


def test_a_private_folder_that_others_can_write_to_is_not_trusted(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    nowhere, temporary = str(tmp_path / "file" / "below"), tmp_path / "temporary"
    settings = {"SEMISTREAM_KERNELS": nowhere, "XDG_CACHE_HOME": nowhere, "TMPDIR": str(temporary)}
    temporary.mkdir()
    _, _, folder = machine.call(**settings)
    assert machine.compiled(**settings) == 0
    Path(folder).chmod(0o777)
    _, kernels, other = machine.call(**settings)
    assert kernels == 1
    assert other != folder


def _levels_here() -> list[str]:
    from numba.core.registry import cpu_target

    return [name for name in usable_targets(cpu_target.target_context.codegen().magic_tuple()) if name in LEVELS]
