"""`python -m backend.server`: `seaway controller` without the rest of `seaway`, as its child processes are started."""

import sys

from .controller_cli import main

sys.exit(main())
