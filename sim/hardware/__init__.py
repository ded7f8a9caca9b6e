"""What clusters are made of, and how long they take: figures with their sources, and formulas.

setups           a cluster with its chips, machines and network: `load("A")`; names, files and tables alike
chips            what is known of each TPU and GPU; layout: islands of them; named: "2xv3-1024" and the like
shared_machines  machines that several processes share
profiles         what calls, messages and gangs cost the CPUs of hosts and clients
kernels          what a computation takes on one device, with its collectives
ici, axes        how long those take, on the links that a gang was given
toml_tables      reading TOML, with errors that name the remedy
"""

from __future__ import annotations

from . import chips, setups
from .chips import Chip
from .ici import kernel_time
from .kernels import Collective, Kernel, Kind
from .profiles import COSTS, Profile, profile
from .setups import Setup, load
from .shared_machines import HOST, Shared
from .toml_tables import figure, known_keys, nearest, packaged, subtable

__all__ = [
    "COSTS",
    "HOST",
    "Chip",
    "Collective",
    "Kernel",
    "Kind",
    "Profile",
    "Setup",
    "Shared",
    "chips",
    "figure",
    "kernel_time",
    "known_keys",
    "load",
    "nearest",
    "packaged",
    "profile",
    "setups",
    "subtable",
]
