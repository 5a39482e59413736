"""semistream on Spark: join DataFrames, batch or streaming, with a relation, and build a relation at scale."""

from semistream.spark.build import build_relation
from semistream.spark.explain import SparkExplanation, explain
from semistream.spark.join import join

__all__ = ["SparkExplanation", "build_relation", "explain", "join"]
