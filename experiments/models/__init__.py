"""The transformers of the paper's tables, in plain JAX: pure functions over dictionaries of arrays, no framework.

`shapes` says how large they are; `layers`, `decoder` and `t5` what they compute; `adafactor` how they learn;
`spmd`, `pipeline` and `islands` cut one training step into computations that slices of devices run.
"""
