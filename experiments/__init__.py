"""Experiments on Seaway: the paper's figures and tables, policy studies, sweeps and benchmarks."""
