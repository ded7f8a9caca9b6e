"""Experiments: benchmarks now; the paper's figures, policy studies and sweeps once the drivers land."""
