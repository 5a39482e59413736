"""The command line starts quickly: tests check its imports, not its time."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import semistream
from tests.cli.conftest import run

HEAVY = {"pyarrow", "numpy", "numba", "duckdb", "lmdb", "pyspark", "pandas", "matplotlib"}
PROBE = """
import json, sys
from semistream.cli.main import run
sys.argv = ["semistream", *sys.argv[1:]]
try:
    run()
except SystemExit as end:
    code = end.code
sys.stdout.write("\\n" + json.dumps([code, sorted({name.partition(".")[0] for name in sys.modules})]))
"""


def imported_by(*words: str) -> set[str]:
    """Return the top-level packages in memory after a successful command."""
    done = subprocess.run([sys.executable, "-c", PROBE, *words], capture_output=True, text=True, check=True)
    code, modules = json.loads(done.stdout.rpartition("\n")[2])
    assert code in (0, None)
    return set(modules)


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["--version"],
        *([command, "--help"] for command in ("relation", "join", "window", "run", "explain", "calibrate", "demo")),
    ],
    ids=" ".join,
)
def test_help_imports_nothing_heavy(words: list[str]) -> None:
    assert not imported_by(*words) & HEAVY


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = "import sys, semistream; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {name.partition(".")[0] for name in done.stdout.split()} & HEAVY


def test_public_names_are_found_where_they_live() -> None:
    from semistream import join
    from semistream.relation import Relation

    assert semistream.join is join
    assert semistream.Relation is Relation
    assert set(semistream._HOMES) == set(semistream.__all__) <= set(dir(semistream))
    for name in semistream.__all__:
        assert getattr(semistream, name).__name__ == name


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'jion'"):
        semistream.jion  # noqa: B018


def test_version_is_the_packages() -> None:
    answer = run("--version")
    assert (answer.code, answer.out) == (0, f"semistream {semistream.__version__}\n")


def test_unknown_command_is_a_usage_error() -> None:
    answer = run("jion")
    assert answer.code == 2
    assert "jion" in answer.err


def test_the_installed_command_reports_errors_without_a_traceback() -> None:
    code = "from semistream.cli.main import run; run()"
    words = ["relation", "info", "does/not/exist"]
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("semistream: does/not/exist does not exist.")
    assert "Traceback" not in done.stderr


def test_python_runs_the_package() -> None:
    done = subprocess.run([sys.executable, "-m", "semistream", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"semistream {semistream.__version__}\n"
