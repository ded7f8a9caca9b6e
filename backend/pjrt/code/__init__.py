"""Compiled code: what clients' code becomes before a gang launches it.

compiled_codes         all code of a host, by plan; compile_threads: one after another, in threads
launchable_code        what `jax.export` wrote, traced and lowered here
stablehlo_codes        raw StableHLO: stablehlo_reading, stablehlo_executables, stablehlo_launchable
executable_cache       executables in a folder, for the next process
forwarders             what an executable calls in its client's process

Neighbours: `world` and `store`, whose devices and arrays it is for; `sandbox`, where clients are not trusted.
"""

from . import stablehlo_executables
from .compile_threads import CompileJob, CompileThreads
from .compiled_codes import Codes
from .executable_cache import ExecutableCache
from .forwarders import AskClient, CallbackRun, Forwarders, unasked
from .launchable_code import LaunchableCode, Unusable, given, keep_on_disk, lower, wake_lapack
from .stablehlo_codes import StableHLOCodes, identity, options_for, stablehlo_of
from .stablehlo_reading import (
    CALLBACKS,
    FOREIGN,
    ArrayFacts,
    CallbackFacts,
    MainFacts,
    MalformedProgram,
    UnknownType,
    main_of,
    module_of,
)
