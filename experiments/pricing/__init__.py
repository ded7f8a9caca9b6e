"""Costs of training steps: every computation was priced by the TPU compiler, and costs are kept in small files.

`shapes` says how large models and their parts are; `jobs` lists the computations of each way of training; `book` finds
their costs in experiments/data.
"""
