"""What a run looked like: tables, pictures and files of a trace, the same for a simulated run and a real one."""

from .storage import NotATrace
from .trace import Trace

__all__ = ["NotATrace", "Trace"]
