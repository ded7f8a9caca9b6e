"""Simulated training runs: each way of training as a program over slices, and a client that calls it.

`steps`, `pipelines` and `exchange` make the programs: one computation (SPMD), a pipeline's stages, islands that
exchange gradients. `drive` runs one and measures its speed, and again without some costs, to find the parts of its
time.
"""
