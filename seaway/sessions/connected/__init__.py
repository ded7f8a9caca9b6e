"""Sessions on real devices: clients of a controller that runs in this process or elsewhere.

connecting, local_cluster  `sw.connect` and `sw.local`
driver, port               a session's connections, and the interface to core's client
exported_code, pricing     computations exported for devices in other processes, and their assumed cost
hosttimes, interrupts      when hosts ran gangs, by their own clocks; Ctrl-C during calls and waits

Each name is imported when it is first used: connecting needs no controller.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .connecting import connect
    from .driver import RealDriver
    from .local_cluster import CONFIG, PLATFORMS, ClusterOptions, LocalCluster, LocalDriver, brought_up, local
    from .pricing import ConnectedPricing

_HOME = {
    "connect": "connecting", "RealDriver": "driver", "ConnectedPricing": "pricing",
    "CONFIG": "local_cluster", "PLATFORMS": "local_cluster", "LocalCluster": "local_cluster",
    "LocalDriver": "local_cluster", "ClusterOptions": "local_cluster", "brought_up": "local_cluster",
    "local": "local_cluster",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    module = _HOME.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f".{module}", __name__), name)
    return found
