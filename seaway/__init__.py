"""Seaway: one controller for islands of accelerators, and a simulator of it that runs the same scheduler."""

from . import _house

_house.check("core")  # before anything is imported from it

__version__ = "0.1.0"
