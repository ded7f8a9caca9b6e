"""A language model serves requests: one slice reads prompts (prefill), another one writes answers (decode), in batches.

python -m seaway simulate examples/serving.py --cluster v4-80
python -m seaway simulate examples/serving.py --cluster v4-80 -- --log AzureLLMInferenceTrace_conv.csv --time 1min

A prompt is a gang on the prefill slice, which ends with the first token of the answer. Then the request's KV cache
moves to the decode slice, once that has room for its tokens. There a step makes one token for each request of the
batch, and a policy says which requests are the batch of the next step. Steps with one batch are one gang. It is stopped
with the step under way when another request is to join.

Assumed: Llama 2 70B in bf16 on TPU v4, at 60 % of what their data sheets say. A prompt takes the FLOPs of its tokens. A
step takes those of a token for each request, after reading the weights and the KV caches, each at its mean length.
"""

from __future__ import annotations

import argparse
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

import jax
import numpy as np

import seaway as sw

FLOPS, BANDWIDTH, MEMORY = 0.6 * 275e12, 0.6 * 1.2e12, 0.95 * (32 << 30)  # of a device, a second and in bytes
NUMBERS = 80 * 2 * 8 * 128  # of a token in the cache: layers, keys and values, heads, numbers of each
WEIGHTS, TOKEN, TOKEN_FLOPS = 2 * 70e9, 2 * NUMBERS, 2 * 70e9  # bytes of all weights, bytes of a token
FIRST, EACH = 1.0, 0.05  # what users accept: seconds to the first token, and for each one after it


@dataclass(eq=False)
class Request:
    at: int  # this, `first` and `last` are nanoseconds of the session's clock
    input: int
    output: int
    first: int = 0
    last: int = 0
    left: int = 0  # tokens that are still to be made
    cache: Any = None


@dataclass
class Continuous:
    """A request joins with the next step, and leaves with its last token, as in Orca (OSDI 2022)."""

    most: int

    def next(self, batch: list[Request], waiting: list[Request]) -> list[Request]:
        stay = [request for request in batch if request.left]
        return stay + waiting[: self.most - len(stay)]


@dataclass
class Static:
    """A batch is kept until all its requests are over."""

    size: int

    def next(self, batch: list[Request], waiting: list[Request]) -> list[Request]:
        return batch if any(request.left for request in batch) else waiting[: self.size]


class Pool:
    """A slice with the weights on it. `room`: of how many tokens it can take the cache besides."""

    def __init__(self, name: str, devices: int) -> None:
        self.devices, self.slice = devices, sw.slice(devices, name=name, exclusive=True)
        self.split = self.slice.sharding(None, "x")
        self.room = int((devices * MEMORY - WEIGHTS) / TOKEN)

    def gang(self, name: str, tokens: int, reads: float = 0, **more: Any) -> sw.Array:
        seconds = tokens * TOKEN_FLOPS / (self.devices * FLOPS) + reads / (self.devices * BANDWIDTH)
        time, temp = f"{round(seconds * 1e9)}ns", int(WEIGHTS / self.devices)
        return sw.synthetic(name, devices=self.slice, duration=time, temp=temp, **more)(np.float32(0))


class Server:
    def __init__(self, prefill: int, decode: int, policy: Continuous | Static) -> None:
        self.prefill, self.decode, self.policy = Pool("prefill", prefill), Pool("decode", decode), policy
        self.arrived, self.read = deque[Request](), deque[Request]()  # those that wait for room in a pool
        self.waiting, self.batch = list[Request](), list[Request]()
        self.gang: sw.Run | None = None  # of the batch
        self.then: dict[sw.Run, Callable[[sw.Run], None]] = {}  # what follows each run

    def serve(self, requests: Iterable[Request]) -> None:
        session, coming = sw.current_session(), deque(requests)
        while coming or self.then:
            pause = f"{max(0, coming[0].at - now())}ns" if coming else None
            for run in session.next_ended(pause):
                self.then.pop(run)(run.wait())
            while coming and coming[0].at <= now():
                self.arrived.append(coming.popleft())
            self.begin()
        if self.arrived or self.read:
            raise ValueError(f"these slices have no room for {(*self.arrived, *self.read)[0]}")
        for pool in (self.prefill, self.decode):
            session.release(pool.slice)

    def begin(self) -> None:
        """All that has room."""
        if self.gang is None:
            self.next_steps()
        while self.arrived and self.prefill.room >= self.arrived[0].input:
            request = self.arrived.popleft()
            self.prefill.room -= request.input
            cache = jax.ShapeDtypeStruct((request.input, NUMBERS), "bfloat16")
            request.cache = self.prefill.gang("prefill", request.input, out=cache, out_shardings=self.prefill.split)
            self.then[request.cache.run] = partial(self.prefilled, request)
        while self.read and self.decode.room >= self.read[0].input + self.read[0].output:
            request = self.read.popleft()
            self.decode.room -= request.input + request.output
            request.cache = sw.put(request.cache, sharding=self.decode.split)
            self.then[request.cache.run] = partial(self.moved, request)

    def prefilled(self, request: Request, run: sw.Run) -> None:
        request.first = request.last = run.ended_at
        request.left = request.output - 1
        if request.left:
            self.read.append(request)
        else:
            self.prefill.room, request.cache = self.prefill.room + request.input, None

    def moved(self, request: Request, run: sw.Run) -> None:
        self.prefill.room += request.input
        self.waiting.append(request)
        if self.gang is not None and request in self.policy.next(self.batch, self.waiting):
            self.gang.stop()

    def next_steps(self) -> None:
        before, self.batch = self.batch, self.policy.next(self.batch, self.waiting)
        self.waiting = [request for request in self.waiting if request not in self.batch]
        for request in before:
            if request not in self.batch:
                self.decode.room, request.cache = self.decode.room + request.input + request.output, None
        if self.batch:
            reads = WEIGHTS + TOKEN * sum(request.input + request.output / 2 for request in self.batch)
            steps = min(request.left for request in self.batch if request.left)
            self.gang = self.decode.gang("decode", len(self.batch), reads, steps=steps).run
            self.then[self.gang] = self.stepped

    def stepped(self, run: sw.Run) -> None:
        self.gang = None
        for request in self.batch:
            if request.left:
                request.left, request.last = request.left - run.steps, run.ended_at


def now() -> int:
    return round(sw.now() * 1e9)


def main() -> None:
    parser = argparse.ArgumentParser(description="Serve requests, and say how long they took.")
    parser.add_argument("--log", help="of Mooncake, Azure or BurstGPT; without one, requests are drawn")
    parser.add_argument("--time", default="15s", help="how much of it")
    parser.add_argument("--splits", nargs="+", default=["8:32", "20:20", "32:8"], help="devices for prefill:decode")
    given, rng = parser.parse_args(), Random(1)
    if given.log:
        load = sw.workload.requests(given.log).between(0, given.time)
        asked = [(each.input, each.output) for each in load]
    else:
        load = sw.workload.poisson(8, given.time, seed=1)
        asked = [(1 + int(rng.lognormvariate(6.6, 0.8)), 1 + int(rng.lognormvariate(5, 0.8))) for _ in load]
    if not load:
        parser.error(f"no request comes within {given.time}: give a longer --time")
    print(f"{load}; wanted: the first token in {FIRST:g} s, each one after it in {EACH * 1e3:g} ms")
    print("devices batching    first p50    p99 (s)  each p50   p99 (ms)  requests/s  tokens/s  as wanted")
    for split in given.splits:
        for policy in (Continuous(most=64), Static(size=64)):
            begin = now()
            requests = [Request(begin + each.at, *tokens) for each, tokens in zip(load, asked, strict=True)]
            Server(*map(int, split.split(":")), policy).serve(requests)
            print(f"{split:7} {type(policy).__name__:10} {row(requests, begin + load.span, load.span / 1e9)}")


def row(requests: list[Request], end: int, seconds: float) -> str:
    """Percentiles of all requests, and how much was done until the last of them came."""
    first = np.array([request.first - request.at for request in requests]) / 1e9
    each = np.array([(request.last - request.first) / max(1, request.output - 1) for request in requests]) / 1e9
    done = [request.output for request in requests if request.last <= end]
    (first50, first99), (each50, each99) = (np.quantile(times, (0.5, 0.99)) for times in (first, each))
    wanted = np.mean((first <= FIRST) & (each <= EACH))
    return (f"{first50:10.2f} {first99:10.2f} {each50 * 1e3:9.1f} {each99 * 1e3:10.1f} {len(done) / seconds:11.1f} "
            f"{sum(done) / seconds:9.0f} {wanted:10.0%}")  # fmt: skip


if __name__ == "__main__":
    main()
