"""Builds a computation from its key in the book of costs, which contains everything that it depends on.

LM-3B/step; data 16, model 8, batch 2048, length 1024         a whole step
LM-3B/first3/forward; data 8, batch 32, length 1024           a pipeline's stage; of the last, perhaps `logits kept`
LM-64B/last30/backward; ..., model 16, ..., segment 1         an island's segment, which has an axis `model`
"""

from __future__ import annotations

import re
from math import prod

from experiments.pricing.jobs import KEPT, torus
from experiments.pricing.shapes import MODELS, T5, Decoder, Part

from . import islands, pipeline, spmd
from .meshes import Computation, abstract

KEY = re.compile(r"(?P<model>[\w-]+)/((?P<part>[a-z]+)(?P<layers>\d+)/)?(?P<kind>\w+); (?P<depends>.+)")
ANY = 16  # tokens of a sequence, for updates, which do not depend on them


def built(key: str) -> Computation:
    """Raises ValueError if it is no key. Costs do not depend on the loss's scale, so it is 1."""
    match = KEY.fullmatch(key)
    if match is None or match["model"] not in MODELS:
        raise ValueError(f"{key!r} is no key of the book of costs; it is like 'LM-3B/step; data 16, model 8, ...'")
    model, depends, mesh = MODELS[match["model"]], _depends(match["depends"]), axes(key)
    batch, length = depends.get("batch", prod(mesh.values())), depends.get("length", ANY)
    if isinstance(model, T5):
        return spmd.t5_step(model, abstract(mesh), batch, length, depends["targets"])
    assert isinstance(model, Decoder)
    if match["part"] is None:
        return spmd.step(model, abstract(mesh), batch, length)
    ends = match["part"]
    part = Part(model, int(match["layers"]), first=ends in ("first", "whole"), last=ends in ("last", "whole"))
    if "model" in mesh or "segment" in depends or "islands" in depends:
        shares = depends.get("islands", 1)
        made: object = islands.segment(part, abstract(mesh), batch, length, scale=1.0, islands=shares)
    else:
        made = pipeline.stage(part, abstract(mesh), batch, length, scale=1.0, keeps=key.endswith(KEPT))
    computation: Computation = getattr(made, match["kind"])
    return computation


def axes(key: str) -> dict[str, int]:
    """The mesh, of cores."""
    depends = _depends(key.partition("; ")[2])
    return {name: depends[name] for name in ("data", "model") if name in depends}


def topology(key: str) -> str:
    """The TPU v3 topology that it is compiled for."""
    short, long = torus(prod(axes(key).values()))
    return f"v3:{short}x{long}"


def _depends(text: str) -> dict[str, int]:
    return {name: int(value) for name, value in re.findall(r"(\w+) (\d+)", text)}
