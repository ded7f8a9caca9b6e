"""Benchmarks of the front door for unmodified JAX programs."""
