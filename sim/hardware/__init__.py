"""Models of hardware: what clusters consist of, how long things take there, and the source of every figure.

setups           a cluster with its chips, machines and network: by name ("A", "2xv3-1024"), file or table
chips            figures of each TPU and GPU; layout: how islands lie on a torus
shared_machines  machines on which several processes run
profiles         what calls, messages and gangs cost the CPUs of hosts and clients
kernels          what a computation takes on one device, and which collectives it has
ici, axes        how long those collectives take on the links between a gang's devices
toml_tables      reads TOML, with errors that say how to put things right
"""

from . import chips, setups
from .axes import link
from .chips import Chip
from .ici import collective_time, kernel_time, road_times
from .kernels import Collective, GangWork, Kernel, Kind
from .profiles import COSTS, Profile, profile
from .setups import Setup, load
from .shared_machines import HOST, Shared
from .toml_tables import figure, known_keys, nearest, packaged, subtable
