"""Code of clients that are not trusted: child processes read and compile it before the agent or the door does.

    an agent: CheckedDevices --> CodeGate ------> Checkers --question--> code_checker, a child process
    a door: local, simulated -> ProgramGate --/          \\-question--> program_checker, a child process

code_gate        `PjrtDevices` with a check before the compiler; verdicts: those that are remembered
program_gate     the door's executables of programs
checkers         the children: started when needed, replaced when they die
checker_process  one child, as its parent sees it; checker_line: as it sees itself
inspection       the operations that code may have; targets: the foreign functions
code_checker, program_checker   what the children do; stage_reading: what MPMD programs say

A child has no secrets, no files and no accelerator, and is bounded in time and memory; it is no sandbox against code
that takes it over (docs/security.md).
"""

from .code_gate import CheckedDevices
from .inspection import read_program
from .program_checker import Description
from .program_gate import ProgramGate
from .stage_reading import ifrt_context, read_stages
