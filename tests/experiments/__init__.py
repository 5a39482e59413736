"""Tests of the experiments: figures of the papers, and their published models."""
