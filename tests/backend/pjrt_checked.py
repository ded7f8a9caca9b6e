"""As a plugin of pytest: in the cases of `pjrt_cases` clients are not trusted."""

from functools import partial

from backend.pjrt.checked import CheckedDevices
from backend.trust import Rules

from . import pjrt_rig

vars(pjrt_rig)["PjrtDevices"] = partial(CheckedDevices, Rules())
