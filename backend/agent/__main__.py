"""`python -m backend.agent`: `seaway agent` without the rest of `seaway`, as its child processes are started."""

import sys

from .agent_cli import main

sys.exit(main())
