"""Shared parts of the paper's micro-benchmarks: their computation, programs made of it, and clients that call them."""
