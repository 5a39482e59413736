"""semistream on Spark: join DataFrames with a relation or with each other, build relations, and run pipelines.

Each public name is imported on first use, so that the Python workers of Spark, which need none of them, start fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from semistream.spark.joins.explain import SparkExplanation as SparkExplanation
    from semistream.spark.joins.explain import explain as explain
    from semistream.spark.joins.join import join as join
    from semistream.spark.joins.join_metrics import JoinMetrics as JoinMetrics
    from semistream.spark.joins.join_metrics import join_metrics as join_metrics
    from semistream.spark.pipelines.listener import PipelineListener as PipelineListener
    from semistream.spark.pipelines.pipeline import Pipeline as Pipeline
    from semistream.spark.relation_builder import build_relation as build_relation
    from semistream.spark.windows.archive_files import repair_window_join as repair_window_join
    from semistream.spark.windows.window_join import window_join as window_join
    from semistream.spark.windows.window_metrics import WindowMetrics as WindowMetrics
    from semistream.spark.windows.window_metrics import window_metrics as window_metrics

_HOMES = {
    "JoinMetrics": "semistream.spark.joins.join_metrics",
    "Pipeline": "semistream.spark.pipelines.pipeline",
    "PipelineListener": "semistream.spark.pipelines.listener",
    "SparkExplanation": "semistream.spark.joins.explain",
    "WindowMetrics": "semistream.spark.windows.window_metrics",
    "build_relation": "semistream.spark.relation_builder",
    "explain": "semistream.spark.joins.explain",
    "join": "semistream.spark.joins.join",
    "join_metrics": "semistream.spark.joins.join_metrics",
    "repair_window_join": "semistream.spark.windows.archive_files",
    "window_join": "semistream.spark.windows.window_join",
    "window_metrics": "semistream.spark.windows.window_metrics",
}

__all__ = [*_HOMES]  # noqa: PLE0604


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
