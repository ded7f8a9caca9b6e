"""All messages between machines, all events that a driver gives a machine, and all commands that it gets back.

messages     between processes: start reading here. They are in `client_messages` and `host_messages`, made of `wire`
dataplane    between the two ends of a transfer
effects      between a machine and its driver: in `host_effects`, `controller_effects`, `client_effects`, `effect_base`
peers        the small integers by which machines name each other
"""

from __future__ import annotations

from . import (
    client_effects,
    client_messages,
    controller_effects,
    dataplane,
    effect_base,
    effects,
    host_effects,
    host_messages,
    messages,
    peers,
    wire,
)
from .dataplane import Chunk, Data, Grant, Landed, Offer, Spoilt
from .effects import *
from .messages import *
from .peers import CONTROLLER, end_of, is_client, peer_of
from .wire import OF_ANOTHER, better

# The modules in which all of them are defined. A log of events depends on the order.
MESSAGES = (wire, client_messages, host_messages, dataplane)
EFFECTS = (effect_base, host_effects, controller_effects, client_effects)
