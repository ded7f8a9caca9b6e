"""Runs copies of a program file in one process, each with a `__main__` module of its own, one at a time."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from types import CodeType, ModuleType

from ..errors import SessionClosed


class Copy:
    """One copy of the program. Call it to run it."""

    def __init__(self, path: Path, code: CodeType, weight: int) -> None:
        self.path, self.weight = path, weight
        self.raised: BaseException | None = None
        self._code = code
        self.module = ModuleType("__main__")
        self.module.__file__ = str(path)
        self.module.__dict__["__builtins__"] = __builtins__

    def __call__(self) -> None:
        try:
            exec(self._code, self.module.__dict__)
        except SystemExit as leaving:
            if leaving.code not in (None, 0):
                self.raised = leaving
                raise
        except SessionClosed:
            raise
        except BaseException as error:
            self.raised = error
            raise

    def show(self, error: BaseException) -> None:
        """Print the traceback, from the program's own first line on."""
        where = error.__traceback__
        while where is not None and where.tb_frame.f_code is not self._code:
            where = where.tb_next
        traceback.print_exception(type(error), error, where or error.__traceback__, file=sys.stderr)


def load(path: Path, arguments: list[str], weights: list[int]) -> list[Copy]:
    """Compile the program and make a copy for each weight.

    All copies share sys.argv and sys.path. `sys.modules["__main__"]` is the first copy's module.
    """
    if not path.is_file():
        there = sorted(found.name for found in path.parent.glob("*.py"))[:8]
        raise ValueError(f"there is no program {path}" + (f"; there is {', '.join(there)}" if there else ""))
    code = compile(path.read_text(encoding="utf-8"), str(path), "exec")
    copies = [Copy(path, code, weight) for weight in weights]
    sys.argv = [str(path), *arguments]
    sys.path.insert(0, str(path.resolve().parent))
    sys.modules["__main__"] = copies[0].module
    return copies
