"""Parity: one program, simulated and on real devices; what core decided in both, and what devices were told."""
