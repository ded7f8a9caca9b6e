"""Arrays that JAX's client cannot send to devices of another process are made into ones that it can.

- numpy's arrays with negative or zero strides, such as `x[::-1]` and `np.broadcast_to(x, shape)`, are copied first.
- Arrays of another client, such as those on the local CPU, travel as numpy's, to the door's devices and back.
- DLPack gets a copy on the local CPU, if it may be a copy.

JAX moves arrays through three functions of jaxlib; calls of jitted functions do when their faster way has failed. What
these functions can do by themselves they do.
"""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from .replaced import replace


def install() -> None:
    replace("jaxlib.xla_client", "batched_device_put", _put)
    replace("jaxlib.xla_client", "batched_copy_array_to_devices_with_sharding", _copy)
    replace("jaxlib._jax", "shard_args", _put_arguments)  # JAX 0.12
    replace("jax._src.dlpack", "to_dlpack", _to_dlpack)


def _put(original: Any, aval: Any, sharding: Any, xs: Sequence[Any], devices: Any, *more: Any, **named: Any) -> Any:
    try:
        return original(aval, sharding, xs, devices, *more, **named)
    except jax.errors.JaxRuntimeError:
        fit = {id(x): _fit(x, devices[0].client) for x in xs}  # the same array may be that of many devices
        if all(fit[id(x)] is x for x in xs):
            raise
    return original(aval, sharding, [fit[id(x)] for x in xs], devices, *more, **named)


def _put_arguments(
    original: Any, shardings: Any, layouts: Any, semantics: Any, xs: Sequence[Any], *more: Any, **named: Any
) -> Any:
    try:
        return original(shardings, layouts, semantics, xs, *more, **named)
    except jax.errors.JaxRuntimeError:
        fit = [_fit(x) for x in xs]
        if all(new is x for new, x in zip(fit, xs, strict=True)):
            raise
    return original(shardings, layouts, semantics, fit, *more, **named)


def _fit(x: Any, client: Any = None) -> Any:
    if isinstance(x, np.ndarray) and x.ndim and min(x.strides) <= 0:
        return x.copy()
    if isinstance(x, jax.Array) and _client(x.sharding) is not client:
        return np.asarray(x)
    return x


def _copy(original: Any, xs: Sequence[Any], devices: Any, shardings: Sequence[Any], semantics: Sequence[Any]) -> Any:
    abroad = [_client(x.sharding) is not _client(sharding) for x, sharding in zip(xs, shardings, strict=True)]
    if not any(abroad):
        return original(xs, devices, shardings, semantics)
    found = []
    for x, to, sharding, how, far in zip(xs, devices, shardings, semantics, abroad, strict=True):
        if not far:
            found += original([x], [to], [sharding], [how])
            continue
        found.append(jax.device_put(np.asarray(x), sharding))
        if how == type(how).DONATE_INPUT:
            x.delete()
    return found


def _to_dlpack(original: Any, x: Any, **named: Any) -> Any:
    try:
        return original(x, **named)
    except jax.errors.JaxRuntimeError:
        if named.get("copy") is False:
            raise
    here = jax.local_devices(backend="cpu")[0]
    return original(jax.device_put(x, here), **(named | {"src_device": here}))


def _client(sharding: Any) -> Any:
    return next(iter(sharding.device_set)).client
