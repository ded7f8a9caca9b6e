"""One client of the door: its arrays, its executables, and the answer to each of its requests.

door_session      requests in, responses out
ops               one function for each request
session_state     what a session holds; session_arrays: its arrays
session_devices   what a session asks of devices; local, cluster and simulated ones answer
session_port      what a session and the service know of each other
memory_meter      how much a client may hold; session_callbacks: what its programs call in its process
stage_plans       MPMD programs, checked

Neighbours: `server` above, `protocol` below; devices are behind the protocols of `session_devices`.
"""

from .door_session import DoorSession, opening
from .session_callbacks import SessionCallbacks
from .session_devices import (
    ArrayCopy,
    ArrayFiles,
    ArrayType,
    CompiledFacts,
    DeviceFacts,
    MemoryFacts,
    Platform,
    Ref,
    Refs,
    SessionDevices,
    StagePlan,
    StatusError,
    Unready,
    WhenCompiled,
    WhenExecuted,
    invalid,
    unsupported,
)
from .session_port import Opening, SessionLink, SessionPort, Version
from .session_state import SessionLimits
