"""The paper's example: three compiled functions on slices of two devices, traced into one program.

python examples/paper.py
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
    with sw.simulate("A", policy="stride"):  # 2048 simulated TPUs: shapes, and when they are ready
        print(f(np.array([1.0, 2.0])))
    with sw.simulate("A", values="compute"):  # the same, with the numbers, from this machine's CPU
        print(f(np.array([1.0, 2.0])))
