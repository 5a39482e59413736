"""A standalone cluster of two workers: exact results and clean builds though Python workers are killed; a pipeline."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """Report of cluster_script, run in its own process because it needs its own JVM."""
    pytest.importorskip("pyspark", reason="pip install 'semistream[spark]' to run these")
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.cluster_script", str(tmp_path_factory.mktemp("cluster"))],
        capture_output=True,
        text=True,
        timeout=600,
        cwd=root,
        env={name: value for name, value in os.environ.items() if name != "PYSPARK_PYTHON"},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_two_executors_did_the_work(report):
    assert report["executors"] == 2


def test_executors_with_an_empty_cache_compile_nothing(report):
    assert report["executors_caches"], "the executors have looked for kernels"
    assert report["compiled_by_executors"] == []


@pytest.mark.parametrize("route", ["none", "range"])
def test_a_worker_killed_in_the_middle_of_its_task_changes_nothing_in_the_result(report, route):
    assert report[route] == {"killed": True, "exact": True}


def test_a_writer_killed_with_its_pages_written_leaves_no_trace(report):
    assert report["writer_killed"]
    assert report["verified_rows"] == 3000
    assert report["data_files"] == report["files_of_version"] == 4


def test_a_pipeline_with_routed_rows_equals_the_batch_join(report):
    pipeline = report["pipeline"]
    assert pipeline["rows"] == [300, 300]
    assert pipeline["joined"]
    assert pipeline["unmatched"]
    assert pipeline["files"] >= 4, "both workers have written of each batch"
