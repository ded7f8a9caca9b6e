"""Benchmarks: `python -m experiments.bench` prints their figures."""
