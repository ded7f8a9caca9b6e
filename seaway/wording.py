"""Small things said to people."""


def duration(nanoseconds: int) -> str:
    """`1.23 ms`"""
    for scale, unit in ((10**9, "s"), (10**6, "ms"), (10**3, "us")):
        if abs(nanoseconds) >= scale:
            return f"{nanoseconds / scale:.6g} {unit}"
    return f"{nanoseconds} ns"


def plural(count: int, word: str) -> str:
    return f"{count} {word}" + ("" if count == 1 else "s")
