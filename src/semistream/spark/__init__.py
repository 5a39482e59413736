"""semistream on Spark: join DataFrames with a relation or with each other, and build a relation at scale."""

from semistream.spark.build import build_relation
from semistream.spark.explain import SparkExplanation, explain
from semistream.spark.join import join
from semistream.spark.window_archive import repair_window_join
from semistream.spark.window_join import window_join
from semistream.spark.window_metrics import WindowMetrics, window_metrics

__all__ = [
    "SparkExplanation",
    "WindowMetrics",
    "build_relation",
    "explain",
    "join",
    "repair_window_join",
    "window_join",
    "window_metrics",
]
