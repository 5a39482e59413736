"""``semistream validate``, ``run``, ``reconcile``, ``status`` and ``vacuum``: commands for pipelines in YAML files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from semistream.cli.options import AsJson, require_java, require_packages

if TYPE_CHECKING:
    from semistream.pipelines.spec.pipeline_spec import PipelineSpec
    from semistream.spark.pipelines.pipeline import Pipeline, Watch

File = Annotated[Path, typer.Argument(metavar="FILE.yaml", help="Pipeline file.", show_default=False)]
Master = Annotated[str, typer.Option(help="Spark master: local[N], spark://host:port, yarn, ...")]
_CONF = "Spark setting NAME=VALUE; repeat for several. A local run has no Spark UI unless spark.ui.enabled=true is set."
Conf = Annotated[list[str] | None, typer.Option("--conf", help=_CONF)]
SPARK_LOG = "spark.log"
"""File in the checkpoint folder with everything that Spark and its workers print."""


def validate(file: File, as_json: AsJson = False) -> None:
    """Check a pipeline file: settings, source, columns, relations and memory. Runs and writes nothing."""
    require_packages("a pipeline")
    from semistream.cli.output import show
    from semistream.cli.pipeline.pipeline_reports import Validated
    from semistream.spark.planning.validate import validate_pipeline

    show(Validated(file, validate_pipeline(file)), as_json=as_json)


def run(
    file: File,
    once: Annotated[bool, typer.Option("--once", help="Process everything available, then exit.")] = False,
    calibrate: Annotated[
        bool,
        typer.Option(
            "--calibrate",
            help="First measure this machine and the disks of the relations, unless already measured.",
        ),
    ] = False,
    master: Master = "local[*]",
    conf: Conf = None,
    as_json: AsJson = False,
) -> None:
    """Run a pipeline until stopped, or once. Ctrl-C and SIGTERM let the current batch finish."""

    def work(pipeline: Pipeline, spark: Any, watch: Watch, stopping: Callable[[], bool]) -> None:
        pipeline.run(spark, once=once, watch=watch, stopping=stopping)

    _on_spark(file, work, master, conf, as_json=as_json, calibrate=calibrate)


def reconcile(file: File, master: Master = "local[*]", conf: Conf = None, as_json: AsJson = False) -> None:
    """Join the rows that a pipeline shed, and remove them from its archive. Stop the pipeline first."""

    def work(pipeline: Pipeline, spark: Any, watch: Watch, stopping: Callable[[], bool]) -> None:
        pipeline.reconcile(spark, watch=watch, stopping=stopping)

    _on_spark(file, work, master, conf, as_json=as_json)


def _on_spark(
    file: Path,
    work: Callable[[Pipeline, Any, Watch, Callable[[], bool]], None],
    master: str,
    conf: list[str] | None,
    *,
    as_json: bool,
    calibrate: bool = False,
) -> None:
    """Run ``work`` for a pipeline on Spark, with live progress and a report at the end.

    Workers use the profile of the driver's machine; ``calibrate`` measures it first if there is none.
    """
    settings = _settings(conf)
    require_packages("a pipeline")
    require_java()
    from semistream.cli.output import show
    from semistream.cli.pipeline.batch_progress import PipelineProgress, stop_requests
    from semistream.cli.pipeline.pipeline_reports import PipelineRun
    from semistream.pipelines.ledger.ledger import Ledger
    from semistream.spark.pipelines.pipeline import Pipeline
    from semistream.spark.planning.validate import check_without_spark
    from semistream.spark.session import session_for

    pipeline = Pipeline.from_yaml(file)
    spec = pipeline.spec
    Ledger.require_free(spec.checkpoint, spec.name)  # fail before starting Spark, which takes a while
    check_without_spark(spec)
    if calibrate:
        _calibrate(spec)
    log = prepare_log(spec.checkpoint)
    total = PipelineRun(spec.name, str(file), log=str(log))
    with (
        PipelineProgress(spec.name, spec.memory, total) as progress,
        session_for(spec, master=master, settings=settings, log=log) as spark,
        stop_requests() as stopping,  # after Spark has started: it installs its own Ctrl-C handler
    ):
        work(pipeline, spark, progress.batch_done, stopping)
    show(total, as_json=as_json)


def _calibrate(spec: PipelineSpec) -> None:
    """Measure the machine and the disks not measured yet; skip relations that do not exist yet."""
    from semistream.cli.progress import step_progress
    from semistream.tuning.calibration.calibrate import calibrate_where_unknown

    with step_progress() as progress:
        calibrate_where_unknown([path for path in spec.relations if path.exists()], progress=progress)


def status(file: File, as_json: AsJson = False) -> None:
    """Show the progress of a pipeline: recent batches, waiting rows, shed rows and uncommitted work."""
    from semistream.cli.output import show
    from semistream.cli.pipeline.pipeline_reports import PipelineStatus

    show(PipelineStatus.of(file), as_json=as_json)


def vacuum(file: File, as_json: AsJson = False) -> None:
    """Delete files that dead workers left behind and no table uses. Stop the pipeline first."""
    require_packages("a pipeline")
    from semistream.cli.output import show
    from semistream.cli.pipeline.pipeline_reports import PipelineVacuumed
    from semistream.pipelines.batch.housekeeping import vacuum_pipeline
    from semistream.spark.kafka.topic_table import KINDS

    show(PipelineVacuumed.of(file, vacuum_pipeline(file, KINDS)), as_json=as_json)


def prepare_log(checkpoint: Path) -> Path:
    """Create the checkpoint folder and the log file for Spark's output in it, and return the file."""
    from semistream.errors import PipelineError

    try:
        checkpoint.mkdir(parents=True, exist_ok=True)
        (checkpoint / SPARK_LOG).touch(mode=0o600)  # Spark prints settings into it
    except OSError as error:
        raise PipelineError(
            f"the checkpoint {checkpoint} cannot be written: {error.strerror}. Give a writable folder."
        ) from error
    return checkpoint / SPARK_LOG


def _settings(conf: list[str] | None) -> dict[str, str]:
    settings = {}
    for each in conf or []:
        name, equals, value = each.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"--conf is {each!r}; give NAME=VALUE.")
        settings[name] = value
    return settings
