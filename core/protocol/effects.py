"""The commands that a machine gives its driver, and the events that the driver gives back.

Commands are named by imperatives (`Launch`, `Send`), events by past participles (`Finished`). A driver decides
nothing: a command says what to do, with what, and commands are carried out in the order in which they come.

A cause names an event at one host: `("order", number)`, `("done", seq)` of a gang or a copy, `("recv", transfer)`,
`("sent", transfer)`, `("count", transfer)`, `("code", plan << 20 | code)`, `("seat", tree)`, `("reformed", epoch)`,
`("failed", seq)`, `("lost", device)`, `("unread", transfer)`; or an earlier command of the same host: `("launch",
seq)`, `("sending", transfer)` for its OpenSend, and `("made", buffer)` for a MakeView, a VoidView, or a MakeBuffer that
had to wait. An executor's command happens at the time of the last of its causes. So a driver may run one executor for a
thousand identical hosts, and take the maximum of the causes' times at each host.
"""

from __future__ import annotations

from .client_effects import *
from .controller_effects import *
from .effect_base import *
from .host_effects import *
