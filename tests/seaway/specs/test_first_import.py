"""JAX is imported when it is first needed, which several threads may find at the same time."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import threading
import numpy as np
import seaway as sw

double = sw.jit(lambda x: x * 2.0, devices=2)
together = threading.Barrier(4)
failed = []

def client(name):
    try:
        with s.client(name):
            together.wait()
            double(np.float32([1, 2])).block_until_ready()
    except BaseException as error:
        failed.append(repr(error))

with sw.simulate("A", values="compute") as s:
    threads = [threading.Thread(target=client, args=(f"client {number}",)) for number in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    print(failed, np.asarray(double(np.float32([1]))))
"""


def test_several_threads_may_make_the_first_call_and_nothing_else_is_printed() -> None:
    """JAX's compiled half prints lines about devices, unless JAX is imported before it, or told not to."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], check=False, capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr) == ("[] [2.]\n", "")
