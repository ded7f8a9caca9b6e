"""The transformers of the paper's tables, in plain JAX, as the TPU compiler is asked what they cost (`..price`).

Pure functions over dictionaries of arrays. `experiments.pricing.shapes` says how large they are; `layers`, `decoder`
and `t5` what they compute; `adafactor` how they learn; `spmd`, `pipeline` and `islands` cut one training step into
computations that slices of devices run; `built` finds the computation of a key in the book of costs.
"""
