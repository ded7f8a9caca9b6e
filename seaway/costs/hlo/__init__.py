"""What a compiler's text (HLO) says of a computation: its operations, loops, collectives and work.

`text` reads it, `shapes` its types, `groups` its replica groups, `loops` how often a body runs, `work` what an
operation computes and moves, `collectives` what devices exchange, and `tally` adds it all up.
"""

from .collectives import Exchange, Kind
from .tally import Rates, Tally, tally
from .text import HloError, Module, parse

__all__ = ["Exchange", "HloError", "Kind", "Module", "Rates", "Tally", "parse", "tally"]
