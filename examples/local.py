"""The paper's example on real devices: two hosts, which are processes of this machine, with two CPU devices each.

python examples/local.py
"""

from typing import Any

import numpy as np

import seaway as sw


def devices(n: int) -> sw.Slice:
    return sw.slice(devices=n)


a = sw.jit(lambda x: x * 2.0, devices=devices(2), name="a")
b = sw.jit(lambda x: x + 1.0, devices=devices(2), name="b")
c = sw.jit(lambda x: x / 2.0, devices=devices(2), name="c")


@sw.program
def f(v: Any) -> Any:
    x = a(v)
    y = b(x)
    z = a(c(x))
    return y, z


if __name__ == "__main__":
    with sw.local(hosts=2, devices_per_host=2) as s:
        print(f(np.array([1.0, 2.0])))
        print(s.trace.summary())
