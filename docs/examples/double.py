"""A program for a cluster that is already up, on this machine or elsewhere.

python docs/examples/double.py grpc://127.0.0.1:29000
"""

import sys

import numpy as np

import seaway as sw

double = sw.jit(lambda x: x * 2.0, devices=4)

if __name__ == "__main__":
    with sw.connect(sys.argv[1]):
        print(double(np.arange(4.0)))
