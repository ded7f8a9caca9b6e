"""Training runs in the simulator: each way of training as a program over slices, and a client that calls it.

`steps` has the programs: one computation for all (SPMD), a pipeline's stages, islands that exchange gradients. `drive`
runs one and says how fast it goes; `ablation` runs it again without this and that, and says what its time is made of.
"""
