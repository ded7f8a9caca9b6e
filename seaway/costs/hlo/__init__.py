"""Reads a compiler's HLO text: operations, loops, collectives and work go into a `Tally` of times and bytes.

`text` parses the text, `shapes` its types and `groups` its replica groups. `loops` finds how often a body runs, `work`
what an operation computes and moves, `collectives` what devices exchange, and `overlap` what of that computing hides.
`tally` adds everything up.
"""

from .collectives import HloCollective, Kind
from .groups import nested
from .tally import Links, Rates, Tally, tally
from .text import HloError, Module, parse
