"""Benchmarks: `python -m experiments.bench` runs them and prints their figures."""
