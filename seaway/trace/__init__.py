"""What happened in a session: tables, pictures and files, the same for a simulated run and a real one.

>>> step = sw.synthetic("step", devices=4, duration="1ms")
>>> with sw.simulate("B", hosts=2) as s:
...     _ = step(np.float32(0)).block_until_ready()
...     folder = s.trace.save("run")
>>> trace = sw.trace.Trace.load(folder)
>>> trace.runs()["program"].tolist()
['step']
"""

from ..machines import of_setup
from . import times
from .hosts import joined
from .summary import step_table
from .trace import Trace

__all__ = ["Trace", "joined", "of_setup", "step_table", "times"]
