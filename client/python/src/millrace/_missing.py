"""What a person hears of a function that cannot be imported: what is missing, where it was
looked for, what is near, and what to do next."""

from __future__ import annotations

import os
import platform
import sys
import traceback
from typing import Any

from millrace._function import DeclarationError, said, users

MOST = 8  # names in a message


def explained(name: str, error: BaseException) -> str:
    """The message for the function "module:name", whose import raised error."""
    if isinstance(error, DeclarationError):
        return declared(name, error)
    missing = error.name if isinstance(error, ModuleNotFoundError) else None
    if not missing:
        return said(error)
    module = name.partition(":")[0]
    if module == missing or module.startswith(missing + "."):
        return no_module(missing)
    return no_package(module, missing)


def declared(name: str, error: DeclarationError) -> str:
    """What is wrong with a declaration, and where. It ends the import, whichever function it is."""
    frames = users(traceback.extract_tb(error.__traceback__))
    if not frames:  # it was imported, and is none
        return str(error)
    module, _, path = name.partition(":")
    words = f"{error} ({frames[-1].filename}:{frames[-1].lineno})"
    if str(error).partition(":")[0] == path:
        return words
    return (
        f"{words}; that is another function, but {module} is not imported, "
        "nor any function of it run, until it is mended"
    )


def no_module(missing: str) -> str:
    """There is no module of the step's own name."""
    package = missing.split(".")[:-1]
    path = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    folders = [os.path.join(folder or os.curdir, *package) for folder in path]
    names = [name for folder in folders for name in modules(folder)]
    hint = near(missing.split(".")[-1], names)
    words = f'there is no module "{missing}" in {", ".join(folders)}{hint}'
    return words + "; path of the step is the folder that holds it"


def no_package(module: str, missing: str) -> str:
    """The step's module imports something that is not there."""
    return (
        f'module "{module}" imports "{missing}", which {sys.executable} '
        f"(Python {platform.python_version()}) does not have; install it there "
        f"({sys.executable} -m pip install PACKAGE, the package that has it), or name another "
        "interpreter, such as interpreter: .venv/bin/python"
    )


def no_attribute(module: str, found: Any, part: str) -> DeclarationError:
    """The module, or a class of it, has no such name."""
    names = [n for n in dir(found) if not n.startswith("_") and callable(getattr(found, n, None))]
    steps = [n for n in names if hasattr(getattr(found, n), "__millrace__")]
    hint = near(part, steps or names)
    return DeclarationError(f'module "{module}" has no attribute "{part}"{hint}')


def modules(folder: str) -> list[str]:
    """The modules and packages of a folder."""
    try:
        entries = sorted(os.listdir(folder))
    except OSError:
        return []
    names = [e[:-3] for e in entries if e.endswith(".py") and e != "__init__.py"]
    packages = [e for e in entries if os.path.isfile(os.path.join(folder, e, "__init__.py"))]
    return [n for n in names + packages if n.isidentifier()]


def near(name: str, names: list[str]) -> str:
    """The nearest of the names, and the first of all."""
    from difflib import get_close_matches  # only when something is missing

    if not names:
        return ""
    close = get_close_matches(name, names, 1)
    hint = f'; did you mean "{close[0]}"?' if close else ";"
    more = f" and {len(names) - MOST} more" if len(names) > MOST else ""
    return f"{hint} it has {', '.join(names[:MOST])}{more}"
