"""`sw.connect`: a session with a controller that runs elsewhere."""

from os import PathLike

from backend.auth import Access, AccessRefused, access
from backend.client import Head
from backend.node import CallError
from backend.streams import LoopThread
from backend.wire import Described, call_messages

from ...errors import Unreachable
from ...units import Time
from ...wording import plural
from ..arguments import checked_live, checked_session, seconds_of
from ..session import Dispatch, Session, opened_live
from .driver import RealDriver


def connect(
    address: str, *, token: str = "", token_file: str | PathLike[str] = "", ca: str | PathLike[str] = "",
    cert: str | PathLike[str] = "", key: str | PathLike[str] = "", client: str = "main",
    dispatch: Dispatch = "parallel", timeout: Time = "10s", patience: Time = "1min", retries: int = 0,
    live: bool | str = False,
) -> Session:  # fmt: skip
    """Open a session on a cluster whose controller runs at this address.

    token: the cluster's token; token_file: a file that has it. ca, cert, key: PEM files, for mutual TLS.
    client: the name of the session's first client. dispatch: "parallel", or "sequential" for the baseline.
    timeout: for the controller to answer. patience: for a controller that went away to come back; after that, each wait
    raises `sw.errors.Unreachable`. retries: how often a run that the cluster failed is submitted again, unless its
    program says otherwise. live: serve a page that shows what goes on, and print its link; or its address.

        >>> double = sw.jit(lambda x: x * 2, devices=2)
        >>> with sw.connect("grpc://head:29000", token_file="token"):
        ...     print(np.asarray(double(np.float32([1, 2]))))
        [2. 4.]
    """
    name: object = client
    if not isinstance(name, str) or not name:
        raise ValueError(f"sw.connect(client={client!r}): a client's name is a text, like 'trainer'")
    if not isinstance(token, str):
        raise TypeError(f"sw.connect(token={type(token).__name__}): a token is a text")  # which is not shown
    files = {"token_file": token_file, "ca": ca, "cert": cert, "key": key}
    for option, file in files.items():
        if not isinstance(file, str | PathLike):
            raise TypeError(f"sw.connect({option}={file!r}): the path of a file, such as 'token'")
    if token and token_file:
        raise ValueError("sw.connect(token=..., token_file=...): give one of the two")
    checked_session("sw.connect", dispatch, retries)
    checked_live("sw.connect", live)
    wait, absent = seconds_of("sw.connect", "timeout", timeout), seconds_of("sw.connect", "patience", patience)
    try:
        place = access.place_of(address)
    except AccessRefused as refused:
        raise ValueError(f"sw.connect({address!r}): {refused}") from None
    try:
        shown = access.read(*map(str, files.values()))
    except AccessRefused as refused:
        raise ValueError(f"sw.connect: {refused}") from None
    if token:
        shown = Access(token, shown.ca, shown.cert, shown.key)
    loop = LoopThread()
    try:
        described = loop.do(_about(place, shown, wait))
        cluster = described.cluster
        title = (
            f"cluster at {place}: {plural(cluster.hosts, 'host')}, {plural(cluster.devices, 'device')} "
            f"({', '.join(described.platforms)})"
        )
        driver = RealDriver(title, loop, place, shown, described, patience=absent)
    except BaseException:
        loop.close()
        raise
    return opened_live(Session(driver, dispatch=dispatch, main=client, retries=retries), live)


async def _about(place: str, shown: Access, timeout: float) -> Described:
    import grpc

    from ... import __version__

    head = Head(place, shown)
    try:
        described: Described = await head.ask(call_messages.AboutReply(__version__), timeout)
        return described
    except CallError as wrong:
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
