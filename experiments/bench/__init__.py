"""Benchmarks: `python -m experiments.bench` runs them and prints their figures.

Benchmark NAME is `NAME.py` in the package named after what it looks at: `simulator`, `real`, `prediction` or `door`.
`frame` is what they share.
"""
