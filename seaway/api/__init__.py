"""What a program uses: computations, programs, puts, routes, pipelines, checkpoints.

jitted, synthetics    `sw.jit`, `sw.pmap`, `sw.synthetic`;  computation: what they share;  process_questions: what is
                      refused in their functions
programs              `sw.program`
putting, routing      `sw.put`, `sw.route`
pipelining, schedules `sw.pipeline`: stages on slices, and the order of their micro-batches
checkpoints/          `sw.checkpoint`
"""

from . import schedules
from .jitted import jit, pmap
from .pipelining import Pipeline, Stage, pipeline, stage
from .programs import Program, program
from .putting import put
from .routing import route
from .schedules import SCHEDULES
from .synthetics import synthetic
