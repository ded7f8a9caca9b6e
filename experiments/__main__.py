"""The command line: `python -m experiments --list`."""

import sys

from .framework.commands import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
