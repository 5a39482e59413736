"""Spark sessions on this machine, for commands that bring their own.

Python workers run the driver's interpreter, without the user setting anything.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

from semistream.errors import InvalidArgument
from semistream.pipelines.spec.pipeline_spec import PipelineSpec

ISOLATION = "spark.sql.artifact.isolation.enabled"
"""If it is on, each streaming query has Python workers of its own, which know nothing of what those of other queries
and of work between batches hold in memory."""
CLUSTER_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    ISOLATION: "false",
    "spark.ui.showConsoleProgress": "false",
}
LOCAL_SETTINGS = {
    **CLUSTER_SETTINGS,
    "spark.driver.memory": "2g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.pyspark.python": sys.executable,
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.files.openCostInBytes": "4096",  # else one small file is one task, and a core is idle
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "10000",  # else a job looks at the files of a large batch
    "spark.ui.enabled": "false",
}


@contextmanager
def local_session(name: str, cores: int | str, *, log: Path, settings: Mapping[str, str]) -> Iterator[SparkSession]:
    """A Spark on this machine whose every line of output, and its workers', goes to the file ``log``."""
    with quiet_session(name, f"local[{cores}]", log=log, settings={**LOCAL_SETTINGS, **settings}) as session:
        yield session


@contextmanager
def session_for(spec: PipelineSpec, *, master: str, settings: Mapping[str, str], log: Path) -> Iterator[SparkSession]:
    """A Spark for a pipeline: on this machine with our settings, or on a cluster with its own."""
    usual = LOCAL_SETTINGS if master.startswith("local") else CLUSTER_SETTINGS
    with quiet_session(f"semistream {spec.name}", master, log=log, settings={**usual, **settings}) as session:
        yield session


@contextmanager
def quiet_session(name: str, master: str, *, log: Path, settings: Mapping[str, str]) -> Iterator[SparkSession]:
    """A Spark whose every line of output goes to the file ``log``; one that runs in this process already is taken as it
    is, and goes on.
    """
    running = SparkSession.getActiveSession()
    if running is not None:
        yield running
        return
    builder = SparkSession.builder.master(master).appName(name)
    for setting, value in settings.items():
        builder = builder.config(setting, value)
    with _output_to(log):
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("WARN")
    try:
        yield session
    finally:
        session.stop()


@contextmanager
def _output_to(log: Path) -> Iterator[None]:
    """Give processes started in the block ``log`` as their stdout and stderr: Spark has no setting for that."""
    sys.stdout.flush()
    sys.stderr.flush()
    saved = [os.dup(1), os.dup(2)]
    try:
        with log.open("ab") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        yield
    finally:
        for number, copy in enumerate(saved, start=1):
            os.dup2(copy, number)
            os.close(copy)


_PYSPARK_DEFAULT = "python3"  # what pyspark starts workers with when PYSPARK_PYTHON was not set


@contextmanager
def worker_interpreter(spark: SparkSession) -> Iterator[None]:
    """Functions given to Spark within the block run on the interpreter that the driver runs on.

    pyspark would start ``python3``, which in a virtual environment is often another Python without semistream in it,
    and it reads ``spark.pyspark.python`` only in spark-submit. What the user chose explicitly stays: the variable
    ``PYSPARK_PYTHON``, then the setting ``spark.pyspark.python`` of the session. Works on a session that runs already,
    since pyspark takes the interpreter's name at the moment when it wraps a function; functions outside the block are
    not touched.
    """
    context = spark.sparkContext
    before = context.pythonExec
    context.pythonExec = choose_interpreter(context)
    try:
        yield
    finally:
        context.pythonExec = before


def choose_interpreter(context: Any) -> str:
    """The interpreter for a Spark context's workers."""
    if os.environ.get("PYSPARK_PYTHON") or context.pythonExec != _PYSPARK_DEFAULT:
        return str(context.pythonExec)
    return str(context.getConf().get("spark.pyspark.python") or sys.executable)


def require_classic(df: Any) -> DataFrame:
    """Refuse what is not a DataFrame of a session with a driver in this process."""
    if not isinstance(df, ClassicDataFrame):
        kind = f"{type(df).__module__}.{type(df).__name__}"
        raise InvalidArgument(
            f"df is a {kind}; give a pyspark DataFrame of a session that runs in this process "
            "(Spark Connect is not supported: the relation must be seen by the driver)."
        )
    return df
