"""Costs of training steps: every computation is priced by the TPU compiler, and costs are kept in small files.

`jobs` lists the computations of each way of training. `book` finds their costs: committed in experiments/data, or
compiled now, or from a roofline. `python -m tests.experiments.price` adds costs to the book.
"""
