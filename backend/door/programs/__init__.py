"""A client's StableHLO, which is read and compiled in a process that may die of it.

stablehlo_programs   a program's arguments, results and types
compiled_facts       what JAX's client asks of a compiled program
checked_compiler     compiles what the checker survived
program_checker      the other process
xla_errors           errors of XLA, with the protocol's codes

Neighbours: `local`, `cluster` and `simulated` compile with it.
"""

from __future__ import annotations

from .checked_compiler import CheckedCompiler
from .compiled_facts import compiled_facts, tiles_on
from .program_checker import Description
from .stablehlo_programs import ProgramFacts, read_program
from .xla_errors import fault_of, translated
