"""Simulated sessions: the user code of many clients runs on one machine, one thread at a time, in simulated time."""

from .driver import SimDriver
from .simulating import Policies, checked_config, fault, policy_of, simulate, struct_of
from .typed_options import ConfigOptions, HardwareOptions, NoiseOptions
