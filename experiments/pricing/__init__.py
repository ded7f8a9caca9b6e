"""What a training step costs: every computation of it, priced by the TPU compiler, and kept as small files.

`jobs` lists the computations that a way of training consists of, `book` finds what they cost (committed in
experiments/data, else compiled now, else a roofline). `python -m experiments.pricing` fills the book.
"""
