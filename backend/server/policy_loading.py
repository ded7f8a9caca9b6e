"""Policies by name, for `--policy` on any command line: one of Seaway's, or the user's own from a module or a file.

    stride:lead=3      one of Seaway's, by name, with options
    acme-backfill      one of an installed package, by the name that its entry point gives it (group seaway.policies)
    mine:Smallest      a class, or a function that makes a policy, in a module that Python finds, or in the current
    folder mine.py:Smallest   the same, in a file

Only the user who starts a process can name code here; clients cannot.
"""

import copy
import importlib
import importlib.metadata
import importlib.util
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import Any

from core.model import Impossible
from core.schedule.policy import ENTRY_POINTS, POLICIES, InstalledPolicy, Policy, named, names

Make = Callable[[], Policy]
OWN = "one of your own is module:Class, or FILE.py:NAME"
HELP = f"{', '.join(POLICIES)}, with options as stride:lead=3, or one of an installed package; {OWN}"
SHOWN = 8  # names in an error


def policy_from(text: str, option: str = "--policy") -> Make:
    """What makes the policy, once for each island. Errors are raised at once, and begin with the option."""
    what = f"{option} {text}"
    before, colon, name = text.rpartition(":")
    if before.endswith(".py"):
        return _checked(_named_in(_file(Path(before), what), name, before, what), name, what)
    if text.endswith(".py"):
        raise Impossible(f"{what}: which policy of that file? Write {text}:NAME")
    if not colon or _has_name(text):
        _check_named(text, what)
        return lambda: named(text, _installed)
    return _checked(_named_in(_module(before, text, what), name, f"module {before!r}", what), name, what)


def _installed() -> Iterable[InstalledPolicy]:
    """The policies of installed packages. They are looked for on the path, which takes milliseconds."""
    return importlib.metadata.entry_points(group=ENTRY_POINTS)


def name_of(kind: type) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


def known_class(name: str) -> type[Policy] | None:
    """The class of this name, if it is a policy of Seaway's or of an installed package. Nothing is called, and what is
    in the current folder does not count as installed: names of classes come from files of strangers."""
    for kind in POLICIES.values():
        if name_of(kind) == name:
            return kind
    here = os.path.realpath(os.curdir)
    before = sys.path[:]
    sys.path[:] = [folder for folder in before if os.path.realpath(folder or os.curdir) != here]
    try:
        for entry in _installed():
            try:
                found = entry.load()
            except Exception:  # somebody else's code, and not what is looked for
                continue
            if isinstance(found, type) and issubclass(found, Policy) and name_of(found) == name:
                return found
    finally:
        sys.path[:] = before
    return None


def _has_name(text: str) -> bool:
    name = text.partition(":")[0].strip().lower().replace("-", "_")
    return name in POLICIES or name in names(_installed)


def _check_named(text: str, what: str) -> None:
    try:
        named(text, _installed)
    except Impossible as error:
        raise Impossible(f"{what}: {error}{'' if _has_name(text) else f'; {OWN}'}") from None


# --- modules and files --------------------------------------------------------------------------------------------


def _module(module: str, text: str, what: str) -> ModuleType:
    if not all(part.isidentifier() for part in module.split(".")):
        raise Impossible(f"{what}: {module!r} is no policy and no module's name; {OWN}")
    with _path_with(""):
        try:
            return importlib.import_module(module)
        except ModuleNotFoundError as error:
            if not f"{module}.".startswith(f"{error.name}."):
                raise _raises(f"module {module!r}", error, what) from None
            near = get_close_matches(module, list(POLICIES), n=1)
            meant = f" (did you mean {near[0]!r}?)" if near else ""
            raise Impossible(
                f"{what}: no policy is called {module!r}{meant}, and no module named {error.name!r} is in the current "
                f"folder, or on PYTHONPATH; {OWN}"
            ) from None
        except (Exception, SystemExit) as error:
            raise _raises(f"module {module!r}", error, what) from None


def _file(path: Path, what: str) -> ModuleType:
    if not path.is_file():
        there = sorted(found.name for found in path.parent.glob("*.py"))[:SHOWN]
        raise Impossible(f"{what}: there is no file {path}" + (f"; there is {', '.join(there)}" if there else ""))
    name = _free_name(path)
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)  # `inspect` looks for its source here
    with _path_with(str(path.resolve().parent)):
        try:
            spec.loader.exec_module(module)
        except (Exception, SystemExit) as error:
            del sys.modules[name]
            raise _raises(str(path), error, what) from None
    return module


def _free_name(path: Path) -> str:
    """A module name for each file, so that files of the same name in two folders do not replace each other."""
    base, count = f"policy_file_{path.stem}", 1
    name = base
    while name in sys.modules and getattr(sys.modules[name], "__file__", None) != str(path.resolve()):
        count += 1
        name = f"{base}_{count}"
    return name


@contextmanager
def _path_with(folder: str) -> Iterator[None]:
    """Puts this folder ("": the current one) first on the path, as for a program that Python runs there."""
    importlib.invalidate_caches()
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        if folder in sys.path:
            sys.path.remove(folder)


def _raises(where: str, error: BaseException, what: str) -> Impossible:
    return Impossible(f"{what}: {where} raises {type(error).__name__}: {error}")


# --- policies in a module -----------------------------------------------------------------------------------------


def _named_in(module: ModuleType, name: str, where: str, what: str) -> Any:
    if name and hasattr(module, name):
        return getattr(module, name)
    own = [each for each, found in vars(module).items() if _is_own(found, module)]
    there = f"; its policies: {', '.join(own[:SHOWN])}" if own else "; it has no policy of its own"
    raise Impossible(f"{what}: {where} has no {name!r}{there}")


def _is_own(found: object, module: ModuleType) -> bool:
    return isinstance(found, type) and issubclass(found, Policy) and found.__module__ == module.__name__


def _checked(found: Any, name: str, what: str) -> Make:
    """Checks that it makes a policy. If it already is one, each island gets a copy."""
    if isinstance(found, Policy):
        pristine = copy.deepcopy(found)
        return lambda: copy.deepcopy(pristine)
    if not callable(found):
        raise Impossible(
            f"{what}: {name} is of type {type(found).__name__}; name a class, or a function that makes a policy"
        )
    try:
        made = found()
    except Exception as error:
        raise Impossible(
            f"{what}: {name}() raises {type(error).__name__}: {error}; it is called without arguments; write a "
            f"function that passes them"
        ) from None
    if not isinstance(made, Policy):
        raise Impossible(
            f"{what}: {name}() makes a {type(made).__name__}, which is no Policy: subclass sw.policies.Policy"
        )
    make: Make = found
    return make
