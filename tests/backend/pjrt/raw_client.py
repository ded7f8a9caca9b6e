"""A core client that runs raw StableHLO on sub-slices of its devices, as the door does for a session."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from backend.contents import StableHLOCode, hash_of
from core.model.program import Arg, Computation, Node, Out, Program, SliceSpec, Value
from core.protocol import Blame
from core.protocol import effects as e
from tests.backend.cluster import User
from tests.backend.pjrt.stablehlo_rig import compile_options


class Failed(Exception):
    def __init__(self, blame: Blame) -> None:
        super().__init__(blame.cause)
        self.blame = blame


class RawClient:
    """`devices`: how many its slice has."""

    def __init__(self, user: User, devices: int) -> None:
        self.user, self.whole = user, SliceSpec("devices", devices)

    def sub(self, picks: Sequence[int]) -> SliceSpec:
        name = "-".join(map(str, picks))
        return SliceSpec(f"devices {name}", len(picks), of="devices", picks=tuple(picks))

    async def told(self, program: Program, *blobs: bytes) -> tuple[int, bytes]:
        """Register it, and await what is said of it."""
        await self.user.head.keep(blobs)
        number = self.user.call(lambda client, now: client.register(program, now, tell=True))
        said: e.ProgramTold = await self.user.until(
            lambda effect: isinstance(effect, e.ProgramTold) and effect.program == number
        )
        if said.blame is not None:
            raise Failed(said.blame)
        return number, said.about

    async def ask(self, artifact: bytes, picks: Sequence[int], question: str = "", name: str = "probe") -> bytes:
        """What the code's first host says, before there is a program that can run."""
        code = StableHLOCode(artifact, compile_options(len(picks)), question)
        return (await self.told(*self._program(name, code, picks, (), ())))[1]

    async def program(
        self, artifact: bytes, picks: Sequence[int], takes: Sequence[Value], makes: Sequence[Value],
        *, name: str = "main",
    ) -> int:  # fmt: skip
        code = StableHLOCode(artifact, compile_options(len(picks)))
        return (await self.told(*self._program(name, code, picks, takes, makes)))[0]

    def _program(
        self, name: str, code: StableHLOCode, picks: Sequence[int], takes: Sequence[Value], makes: Sequence[Value],
    ) -> tuple[Program, bytes]:  # fmt: skip
        blob = code.encode()
        takes, makes = (tuple(Value(v.shape, v.dtype, 1, v.sharding) for v in each) for each in (takes, makes))
        node = Node(name, 0, 1, tuple(map(Arg, range(len(takes)))), takes, makes)
        computation = Computation(name, hash_of(blob), 1000, code=hash_of(blob))
        results = tuple(Out(0, at) for at in range(len(makes)))
        slices = (self.whole, self.sub(picks))
        return Program(name, slices, (computation,), takes, (node,), results), blob

    async def moving(self, artifact: bytes, like: Value, source: Sequence[int], target: Sequence[int]) -> int:
        """A program that runs on `target`, and whose argument is on `source`."""
        blob = StableHLOCode(artifact, compile_options(len(target))).encode()
        here, there = (Value(like.shape, like.dtype, at, like.sharding) for at in (1, 2))
        node = Node("move", 0, 2, (Arg(0),), (there,), (there,))
        computation = Computation("move", hash_of(blob), 1000, code=hash_of(blob))
        slices = (self.whole, self.sub(source), self.sub(target))
        return (await self.told(Program("move", slices, (computation,), (here,), (node,), (Out(0),)), blob))[0]

    async def put(self, like: Value, picks: Sequence[int], array: Any) -> int:
        offers: list[Any] = []

        def act(client: Any, now: int) -> Any:
            buffer = client.put(Value(like.shape, like.dtype, 0, like.sharding), self.sub(picks), now)
            offers.append(self.user.remote.offer(buffer))
            return buffer

        buffer: int = self.user.call(act)
        offers[0].give(np.asarray(array))
        await self.ready(buffer)
        return buffer

    async def ready(self, buffer: int) -> None:
        said: e.BuffersReady = await self.user.until(
            lambda effect: isinstance(effect, e.BuffersReady) and buffer in effect.buffers
        )
        if said.blame is not None:
            raise Failed(said.blame)

    async def run(self, program: int, *arguments: int | bytes) -> list[int]:
        """Submit it and await its end. Return the buffers of its results."""
        submitted = self.user.submit(program, *arguments)
        ended = await self.user.ended(submitted.run)
        if ended.blame is not None:
            raise Failed(ended.blame)
        return list(submitted.results)

    async def get(self, buffer: int) -> Any:
        request = self.user.call(lambda client, now: client.get(buffer, now))
        transfer = await self.user.until(lambda effect: isinstance(effect, e.GetStarted) and effect.request == request)
        await self.user.until(lambda effect: isinstance(effect, e.Received) and effect.transfer == transfer.transfer)
        return self.user.remote.taken(request)
