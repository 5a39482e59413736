"""semistream on Spark: join DataFrames with a relation or with each other, build relations, and run pipelines."""

from semistream.spark.joins.explain import SparkExplanation, explain
from semistream.spark.joins.join import join
from semistream.spark.pipelines.listener import PipelineListener
from semistream.spark.pipelines.pipeline import Pipeline
from semistream.spark.relation_builder import build_relation
from semistream.spark.windows.archive_files import repair_window_join
from semistream.spark.windows.window_join import window_join
from semistream.spark.windows.window_metrics import WindowMetrics, window_metrics

__all__ = [
    "Pipeline",
    "PipelineListener",
    "SparkExplanation",
    "WindowMetrics",
    "build_relation",
    "explain",
    "join",
    "repair_window_join",
    "window_join",
    "window_metrics",
]
