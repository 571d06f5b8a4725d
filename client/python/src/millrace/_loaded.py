"""What a process has imported: functions by name, and the files that their code came from.

A module is imported once, whatever becomes of its file. What identifies a function is the file
that was imported: one that differs by now is an error, never the name of code that does not run.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import importlib.abc
import importlib.machinery
import os
import sys
from typing import TYPE_CHECKING, Any, Callable

from millrace._function import DeclarationError, Function, bound
from millrace._missing import no_attribute

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import CodeType, ModuleType

Seen = tuple[int, ...]  # what changes when a file is written or replaced


class ChangedError(Exception):
    """A module's file is not the one that was imported."""


class Source(importlib.machinery.SourceFileLoader):
    """Imports from the source, and leaves cached bytecode alone."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


class Files(importlib.abc.MetaPathFinder):
    """The files of modules: what each was when it was imported."""

    def __init__(self) -> None:
        self._found: dict[str, Seen] = {}  # by module, before its import
        self._read: dict[str, Any] = {}  # by module: SHA-256 of what was imported

    def watch(self) -> None:
        """Sees all that is imported from now on."""
        at = sys.meta_path.index(importlib.machinery.PathFinder)
        sys.meta_path.insert(at, self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.has_location and spec.origin:
            self._found[fullname] = seen(spec.origin)
            if type(spec.loader) is importlib.machinery.SourceFileLoader and stale(spec):
                spec.loader = Source(fullname, spec.origin)
        return spec

    def sha256(self, module: str) -> Any:
        """The hash of the file that a module was imported from, to go on with."""
        path = file_of(module)
        with open(path, "rb") as file:
            now = hashlib.sha256(file.read())
        if module not in self._read and self._found.get(module) in (None, seen(path)):
            self._read[module] = now
        if module not in self._read or self._read[module].digest() != now.digest():
            raise ChangedError(f"{path} changed since it was imported")
        return now.copy()


class Functions:
    """The functions of this process: loaded by name, set up once."""

    def __init__(self, files: Files | None = None) -> None:
        self._files = files or Files()
        self._loaded: dict[str, Function] = {}
        self._digests: dict[str, str] = {}
        self._started: dict[str, Callable[..., Any]] = {}

    def load(self, name: str) -> Function:
        """The function "module:name"; raises what the import raises."""
        if name not in self._loaded:
            module, _, path = name.partition(":")
            found: Any = importlib.import_module(module)
            for part in path.split("."):
                if not hasattr(found, part):
                    raise no_attribute(module, found, part)
                found = getattr(found, part)
            function = bound(found)
            if made_elsewhere(function, module):
                function = dataclasses.replace(function, name=path)
            self._loaded[name] = function
        return self._loaded[name]

    def digest(self, name: str) -> str:
        """Of the module's file, version and name; and of the file that made it, if that is another.

        What another file made, as a factory does, has the name that the module gives it: several
        that were made there have their own name in common.
        """
        if name not in self._digests:
            function, module = self.load(name), name.partition(":")[0]
            code = self._files.sha256(module)
            for part in (function.version, function.name):
                code.update(b"\0" + part.encode())
            if made_elsewhere(function, module):
                code.update(b"\0" + self._files.sha256(function.target.__module__).digest())
            self._digests[name] = code.hexdigest()
        return self._digests[name]

    def start(self, name: str) -> Callable[..., Any]:
        if name not in self._started:
            self._started[name] = self.load(name).start()
        return self._started[name]


def made_elsewhere(function: Function, module: str) -> bool:
    """Whether the file that defines a function is another one than its step's module."""
    maker = function.target.__module__
    return maker != module and not os.path.samefile(file_of(maker), file_of(module))


def file_of(module: str) -> str:
    path: str | None = getattr(sys.modules.get(module), "__file__", None)
    if not path:
        raise DeclarationError(f"module {module} has no file, which would identify its functions")
    return path


def seen(path: str) -> Seen:
    try:
        stat = os.stat(path)
    except OSError:  # in an archive, say
        return ()
    return stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns


def stale(spec: importlib.machinery.ModuleSpec) -> bool:
    """Whether cached bytecode is older than its source.

    Python takes it for current if the source has the second and the size that it had.
    """
    try:
        return os.stat(spec.cached or "").st_mtime_ns < os.stat(spec.origin or "").st_mtime_ns
    except OSError:
        return False
