"""The ``semistream`` command: its sub-commands, and the mapping of errors to messages and exit codes.

Heavy packages are imported only when a command runs, so ``--help`` answers at once.
"""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from semistream import __version__
from semistream.cli.calibrate import calibrate
from semistream.cli.compile import compile_kernels
from semistream.cli.demo.command import demo
from semistream.cli.explain.command import explain
from semistream.cli.join.command import join
from semistream.cli.options import with_option_names
from semistream.cli.pipeline.commands import reconcile, status, vacuum, validate
from semistream.cli.pipeline.commands import run as run_pipeline
from semistream.cli.relation import app as relation
from semistream.cli.window.command import window
from semistream.errors import BUILD_ONE, NotARelation, SemistreamError, hidden

_TAKE_ARGUMENTS = ("join", "explain", "relation", "window")  # others read a pipeline file, which has its own names


class _Commands(TyperGroup):
    """Command group that reports errors on stderr without a traceback.

    Exit code 1 is a refusal or a failure, 2 a wrong command line.
    """

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except NotARelation as error:
            message = _with_command(str(error))
        except SemistreamError as error:
            message = str(error)
            if ctx.invoked_subcommand in _TAKE_ARGUMENTS:
                message = with_option_names(message)
        except OSError as error:
            if isinstance(error, BrokenPipeError):
                raise
            message = f"{error.strerror or error}" + (f": {error.filename}" if error.filename else "")
        except Exception as error:
            if _is_data_error(error):
                message = f"cannot read or write the data: {error}"
            elif _is_spark_error(error):
                message = f"Spark failed: {str(error).strip().splitlines()[0]}"
            else:
                raise  # a bug: show its traceback
        typer.echo(f"semistream: {hidden(message)}", err=True)
        raise typer.Exit(1)


def _with_command(message: str) -> str:
    """Replace the Python call that a message suggests by the equivalent command."""
    return message.replace(BUILD_ONE, "Build one with `semistream relation build SOURCE PATH --key COLUMN`.")


def _is_data_error(error: Exception) -> bool:
    """True if pyarrow or DuckDB raised the error; imports neither."""
    arrow, duckdb = sys.modules.get("pyarrow"), sys.modules.get("duckdb")
    return (arrow is not None and isinstance(error, arrow.ArrowException)) or (
        duckdb is not None and isinstance(error, duckdb.Error)
    )


def _is_spark_error(error: Exception) -> bool:
    """True if Spark raised the error (over settings, a source or a session); does not import it."""
    errors = sys.modules.get("pyspark.errors")
    return errors is not None and isinstance(error, errors.PySparkException)


app = typer.Typer(
    cls=_Commands,
    help="Join a fast stream with a relation far larger than memory, exactly and within one memory budget.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(relation, name="relation")
app.command()(join)
app.command()(window)
app.command()(validate)
app.command()(run_pipeline)
app.command()(reconcile)
app.command()(status)
app.command()(vacuum)
app.command()(explain)
app.command()(calibrate)
app.command("compile")(compile_kernels)
app.command()(demo)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"semistream {__version__}")
        raise typer.Exit


@app.callback()
def _global_options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Options given before the command."""


def run() -> None:
    """Run the command line; the installed ``semistream`` script calls this."""
    app(prog_name="semistream")
