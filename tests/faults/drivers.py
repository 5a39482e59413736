"""A process with a Spark JVM that forks drivers for it. A driver may be killed while the JVM lives on.

A driver that attaches to the JVM finds what a dead one has left there: its Spark context, its queries, jobs that still
run and Python workers with their caches. A kill therefore costs no new JVM, and is harsher than a kill of
everything.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

import numpy as np
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

import semistream.pipelines.tables.delta  # noqa: F401 (so that forks have it)
from semistream.costs.kernels import count_runs
from semistream.pipelines.ledger.faults import VARIABLE
from semistream.spark.pipelines.pipeline import Pipeline
from semistream.spark.session import LOCAL_SETTINGS
from tests.faults.window_scenario import run_window_join
from tests.spark.pipelines.overloads import ROW_S, believe_slow
from tests.spark.quick_jvm import QUICK_START

SETTINGS = {
    **LOCAL_SETTINGS,
    "spark.app.name": "semistream faults",
    "spark.driver.memory": "1g",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": QUICK_START,
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.stopTimeout": "20s",
    "spark.task.maxFailures": "4",
    "spark.python.authenticate.socketTimeout": "60s",  # else workers of a busy machine are given up
    "spark.deploy.maxExecutorRetries": "-1",
}


def attach(settings: dict[str, str]) -> SparkSession:
    """Return the session of the JVM named by the environment; stop the queries of a dead driver."""
    gateway = launch_gateway()
    jvm = gateway.jvm
    wanted = jvm.SparkConf()
    for name, value in settings.items():
        wanted.set(name, value)
    java_context = jvm.JavaSparkContext(jvm.org.apache.spark.SparkContext.getOrCreate(wanted))
    context = SparkContext(conf=SparkConf(_jconf=java_context.getConf()), jsc=java_context, gateway=gateway)
    context.setLogLevel("OFF")
    spark = SparkSession.builder.getOrCreate()
    for query in spark.streams.active:
        query.stop()
    return spark


def drive(settings: dict[str, str], spec: dict[str, Any], fault: str, worker_fault: str, *, reconcile: bool) -> None:
    """Run a pipeline until its source has nothing new, or repair its shed rows, or until a fault kills a process.

    A driver that can shed rows assumes a high cost of rows, and therefore sheds. A spec may also be one of a window
    join.
    """
    os.environ[VARIABLE] = fault
    believe_slow(ROW_S, setattr)
    spark = attach(settings)
    if worker_fault:
        spark.sparkContext.environment[VARIABLE] = worker_fault
    if "window_join" in spec:
        run_window_join(spark, **spec["window_join"])
        return
    pipeline = Pipeline.from_dict(spec)
    if reconcile:
        pipeline.reconcile(spark)
    else:
        pipeline.run(spark, once=True)


def serve(master: str, log: Path) -> None:
    """Start a JVM, then a driver for each request line, and report how it ended."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    with log.open("ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.fsync = os.fstat  # tests kill processes, not the machine, so written data survives
    settings = {**SETTINGS, "spark.master": master}
    conf = SparkConf(loadDefaults=False)
    for name, value in settings.items():
        conf.set(name, value)
    gateway = launch_gateway(conf)
    parameters = gateway.java_parameters
    os.environ["PYSPARK_GATEWAY_PORT"] = str(parameters.port)
    os.environ["PYSPARK_GATEWAY_SECRET"] = parameters.auth_token
    count_runs(*np.zeros((3, 1), np.int64))  # numba finds its parts with the first kernel, and forks have them
    answers.write(json.dumps({"jvm": gateway.proc.pid}) + "\n")
    for line in sys.stdin:
        pid = os.fork()
        if not pid:
            _be_driver(settings, json.loads(line))
        answers.write(json.dumps({"pid": pid}) + "\n")
        answers.write(json.dumps({"code": os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}) + "\n")


def _be_driver(settings: dict[str, str], wanted: dict[str, Any]) -> None:
    code = 1
    try:
        drive(settings, wanted["spec"], wanted["fault"], wanted["worker_fault"], reconcile=wanted["reconcile"])
        code = 0
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)  # the JVM stays


if __name__ == "__main__":
    serve(sys.argv[1], Path(sys.argv[2]))
