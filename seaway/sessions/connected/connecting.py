"""`sw.connect`: a session with a controller that runs elsewhere."""

from __future__ import annotations

from backend.auth import Access, Refused, access
from backend.client import Head
from backend.node import Wrong
from backend.wire import Described

from ...wording import plural
from ..arguments import checked_retries, checked_seconds
from ..session import Dispatch, Session
from .driver import RealDriver
from .errors import Unreachable
from .loop import Loop


def connect(
    address: str, *, token: str = "", token_file: str = "", ca: str = "", cert: str = "", key: str = "",
    client: str = "main", dispatch: Dispatch = "parallel", timeout: float = 10.0, patience: float = 60.0,
    retries: int = 0,
) -> Session:  # fmt: skip
    """A session on a cluster: `with sw.connect("grpc://head:29000", token=...) as s:`.

    address: the controller's. token: the cluster's; token_file: a file that contains it. ca, cert, key: PEM files, for
    mutual TLS. client: the name of the session's first client. timeout: seconds to wait for the controller's answer.
    patience: seconds to wait for a lost controller to come back; then all waits end with `sw.Unreachable`.
    retries: how often a run that the cluster failed is submitted again, unless its program says otherwise.
    """
    if token and token_file:
        raise ValueError("sw.connect(token=..., token_file=...): give one of the two")
    checked_retries("sw.connect", retries)
    checked_seconds("sw.connect", timeout=timeout, patience=patience)
    try:
        place = access.place_of(address)
    except Refused as refused:
        raise ValueError(f"sw.connect({address!r}): {refused}") from None
    try:
        shown = access.read(token_file, ca, cert, key)
    except Refused as refused:
        raise ValueError(f"sw.connect: {refused}") from None
    if token:
        shown = Access(token, shown.ca, shown.cert, shown.key)
    loop = Loop()
    try:
        described = loop.do(_about(place, shown, timeout))
        cluster = described.cluster
        title = (
            f"cluster at {place}: {plural(cluster.hosts, 'host')}, {plural(cluster.devices, 'device')} "
            f"({', '.join(described.platforms)})"
        )
        driver = RealDriver(title, loop, place, shown, described, patience=patience)
    except BaseException:
        loop.close()
        raise
    return Session(driver, dispatch=dispatch, main=client, retries=retries)


async def _about(place: str, shown: Access, timeout: float) -> Described:
    import grpc

    from ... import __version__

    head = Head(place, shown)
    try:
        return await head.about(__version__, timeout)
    except Wrong as wrong:
        if wrong.code == grpc.StatusCode.UNAUTHENTICATED:
            raise Unreachable(
                f"the controller at {place} refused our credentials: {wrong}. Give sw.connect(..., token=...), the "
                f"cluster's token"
            ) from None
        if wrong.code in (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNAVAILABLE):
            raise Unreachable(
                f"no controller answers at {place} (waited {timeout:g} s). Is `python -m seaway controller` running "
                f"there, and is its port open to this machine? On one machine, sw.local() needs none"
            ) from None
        raise Unreachable(f"the controller at {place} refused the connection: {wrong}") from None
    finally:
        await head.close()
