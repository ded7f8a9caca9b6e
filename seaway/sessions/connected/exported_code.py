"""Exports a computation as code that hosts can run: a `Signature` goes in, StableHLO and its hash come out.

The bytes are in `jax.export`'s own format, never a pickle. Hosts find the code by its hash. It is exported for devices
that this process need not have.
"""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from typing import Any, NamedTuple

from ...graph import Signature
from ...specs import WHOLE, partition_spec, trees
from ..replaced import said


class ExportedCode(NamedTuple):
    name: str  # sha256 of the blob
    blob: bytes


@lru_cache(maxsize=64)  # a session asks once; another session soon after may ask for the same
def code_of(signature: Signature, platforms: tuple[str, ...]) -> ExportedCode:
    """One export for all of these platforms.

    The code of an irregular computation has one extra result, the number of valid rows. An error from exporting gets a
    note that names the computation.
    """
    if signature.document:
        return ExportedCode(hashlib.sha256(signature.document).hexdigest(), signature.document)
    if signature.function is None:
        raise TypeError(
            f"{signature.name!r} is only its cost, with nothing to compute, so no {' or '.join(platforms)} device can "
            f"run it; write it with sw.jit, or run it in sw.simulate or on devices of kind 'timed'"
        )
    from jax import export

    _leave_devices_alone()
    try:
        exported = export.export(_jitted(signature), platforms=platforms)(*_arguments(signature))
        blob = bytes(exported.serialize())
    except Exception as error:
        told = _better(signature, error)
        told.add_note(
            f"while computation {signature.name!r} on {signature.slice!r} was exported for {', '.join(platforms)}"
        )
        if told is error:
            raise
        raise told from None
    return ExportedCode(hashlib.sha256(blob).hexdigest(), blob)


def _better(signature: Signature, error: Exception) -> Exception:
    """A clearer error for functions that call back into Python. JAX's own does not name what the user wrote."""
    import jax

    function: Any = signature.function
    text = str(jax.make_jaxpr(function)(*(leaf.abstract() for leaf in signature.inputs)))
    found = sorted(set(re.findall(r"\b(?:pure|io|debug)_callback\b|\bdebug_print\b", text)))
    if not found:
        return error
    return NotImplementedError(
        f"{signature.name!r} calls back into Python ({', '.join(found)}), and other processes do not have this one's "
        f"functions: return what you want to see or to change here, and read it between two calls"
    )


def warn_of_nans(name: str) -> None:
    """JAX looks for NaNs in the process that runs a computation, if its user asked for that there."""
    import jax

    config: Any = jax.config
    for option in ("jax_debug_nans", "jax_debug_infs"):
        if getattr(config, option):
            what = "NaNs" if option == "jax_debug_nans" else "infinities"
            said(
                f"{option} is on here, and hosts do not look for {what}: what {name!r} makes there is not checked. "
                f"Return a check with the results, such as jnp.isfinite(x).all(), and look at that; or run the program "
                f"in sw.simulate(values='compute'), which looks"
            )


def _leave_devices_alone() -> None:
    """Keep JAX in this process off accelerators, which belong to the agents.

    Lowering opens some device of this process. Unless the user chose platforms for JAX, let that be the CPU.
    """
    import jax

    config: Any = jax.config
    if not config.jax_platforms:
        config.update("jax_platforms", "cpu")


def _jitted(signature: Signature) -> Any:
    """The function jitted from leaves to leaves. Only the client knows the pytrees."""
    import jax

    function = signature.function

    def leaves_of(*leaves: Any) -> list[Any]:
        assert function is not None
        return trees.leaves(function(*leaves))

    leaves_of.__name__ = signature.name  # what profilers and compilers call it
    outs = [_named(signature, each) for each in signature.out_shardings]
    if signature.irregular:
        outs.append(_named(signature, WHOLE))  # the number of valid rows
    return jax.jit(leaves_of, out_shardings=outs)


def _arguments(signature: Signature) -> list[Any]:
    import jax

    from ...specs import jax_dtype

    made: Any = jax.ShapeDtypeStruct
    return [
        made(leaf.shape, jax_dtype(leaf.dtype), weak_type=leaf.weak, sharding=_named(signature, sharding))
        for leaf, sharding in zip(signature.inputs, signature.expects, strict=True)
    ]


def _named(signature: Signature, sharding: Any) -> Any:
    from jax.sharding import NamedSharding

    home = signature.slice
    return NamedSharding(home.mesh, partition_spec(sharding, home.axis_names))
