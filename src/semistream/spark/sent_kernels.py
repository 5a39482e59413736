"""Send the driver's compiled kernels to executors on other machines, so that no task compiles."""

from __future__ import annotations

import logging
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

from pyspark import SparkFiles
from pyspark.sql import SparkSession

from semistream.kernels.compiler.compile_all import level_of_this_machine, missing_kernels, stored_kernels
from semistream.kernels.compiler.store import SENT, STORE

ISOLATION = "spark.sql.artifact.isolation.enabled"
"""Setting that gives each session, and each streaming query, artifacts and Python workers of its own."""
_LOG = logging.getLogger(__name__)
_MARK = "spark.semistream.kernels"
"""Setting of a session whose executors have the driver's kernels."""


def send_kernels(spark: SparkSession) -> None:
    """Send the kernels that the package does not bring to the executors, once in a session.

    The driver compiles those that it does not have itself, in processes of its own. Executors of this machine read the
    driver's store, so nothing is sent to them.
    """
    if spark.sparkContext.master.startswith("local") or spark.conf.get(_MARK, None) is not None:
        return
    spark.conf.set(_MARK, "sent")
    if missing := missing_kernels(level_of_this_machine()):
        _LOG.warning("compiling %d kernels on the driver, once", sum(map(len, missing.values())))
        subprocess.run([sys.executable, "-m", "semistream", "compile"], check=False, capture_output=True)
    archive = Path(SparkFiles.getRootDirectory()) / "sent" / SENT  # Spark removes it when it stops
    if not archive.exists():
        archive.parent.mkdir()
        with zipfile.ZipFile(archive, "w") as zipped:
            for name in stored_kernels():
                zipped.write(STORE.folder / name, name)
    _add_archive(spark, archive)


def _add_archive(spark: SparkSession, archive: Path) -> None:
    """Add an archive that executors unpack for each session with its own artifacts, or for all others."""
    if spark.conf.get(ISOLATION, "false") != "true":
        spark.sparkContext.addArchive(str(archive))
        return
    jvm: Any = spark.sparkContext._jvm
    source, target = (jvm.java.io.File(path).toPath() for path in (str(archive), f"archives/{archive.name}"))
    spark._jsparkSession.artifactManager().addArtifact(target, source, jvm.scala.Option.empty(), False)
