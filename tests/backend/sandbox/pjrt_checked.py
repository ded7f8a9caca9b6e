"""A pytest plugin: it runs the tests of `pjrt_cases` with clients that are not trusted."""

from functools import partial

from backend.auth.trust import Rules
from backend.sandbox.code_gate import CheckedDevices

from ..pjrt import pjrt_rig

vars(pjrt_rig)["PjrtDevices"] = partial(CheckedDevices, Rules())
