"""The command line: `seaway COMMAND`, or `python -m seaway COMMAND`."""

import sys
from collections.abc import Sequence
from importlib import import_module

from . import __version__

# Command: the module whose `main(arguments)` runs it (imported only when it is asked for), and what it does.
COMMANDS = {
    "demo": ("seaway.demo", "see it at work"),
}

USAGE = "\n".join(
    [
        "usage: seaway COMMAND",
        "",
        *(f"  {name:10} {what}" for name, (_, what) in COMMANDS.items()),
        "",
        "  --version  print the version",
        "  --help     print this",
    ]
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the result is the exit status."""
    name, *arguments = (sys.argv[1:] if argv is None else argv) or ["--help"]
    if name in ("-h", "--help"):
        print(USAGE)
    elif name == "--version":
        print(__version__)
    elif name in COMMANDS:
        status: int = import_module(COMMANDS[name][0]).main(arguments)
        return status
    else:
        print(f"seaway: no command {name!r}\n\n{USAGE}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
