"""Functions as a worker loads them: what identifies them, and the files that they came from."""

from __future__ import annotations

import errno
import hashlib
import importlib
import os
import py_compile
import socket
import sys
import zipfile
from pathlib import Path

import pytest

from millrace._function import NEEDS_NETWORK, NO_NETWORK, DeclarationError, said
from millrace._loaded import ChangedError, Files, Functions
from millrace._missing import explained

STEP = """
import millrace

@millrace.transform
def f(text: str) -> str:
    return text + "1"

@millrace.transform(version="2")
def g(text: str) -> str:
    return text + "1"

h = f
"""


@pytest.fixture
def files(tmp_path, monkeypatch):
    """A finder of modules in tmp_path, which are forgotten at the end."""
    before = set(sys.modules)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.syspath_prepend(tmp_path)
    watching = Files()
    watching.watch()
    yield watching
    for name in set(sys.modules) - before:
        del sys.modules[name]


def write(folder: Path, **modules: str) -> None:
    for name, text in modules.items():
        (folder / f"{name}.py").write_text(text)
    importlib.invalidate_caches()


def expected(text: str, *parts: str) -> str:
    return hashlib.sha256(b"\0".join([text.encode(), *(p.encode() for p in parts)])).hexdigest()


def test_identity(tmp_path, files):
    write(tmp_path, steps=STEP, link="")
    os.remove(tmp_path / "link.py")
    os.symlink(tmp_path / "steps.py", tmp_path / "link.py")
    functions = Functions(files)
    assert functions.digest("steps:f") == expected(STEP, "", "f")
    assert functions.digest("steps:g") == expected(STEP, "2", "g")
    assert functions.digest("steps:h") == expected(STEP, "", "f")  # of one file: its own name
    assert functions.digest("link:g") == expected(STEP, "2", "g")


def test_identity_of_what_another_file_made(tmp_path, files):
    maker = """
import millrace
import numpy as np

def made(end):
    @millrace.transform
    def clean(text: str, rng: np.random.Generator) -> str:
        return f"{text}{end}{rng.integers(1 << 40)}"

    return clean
"""
    made = "from maker import made\na, b = made('a'), made('b')\n"
    write(tmp_path, maker=maker, one=made, two=made + "# another file\n")

    def digests():
        for name in ("maker", "one", "two"):
            sys.modules.pop(name, None)
        functions = Functions(files := Files())
        files.watch()
        return [functions.digest(name) for name in ("one:a", "one:b", "two:a")]

    before = digests()
    assert len(set(before)) == 3
    write(tmp_path, maker=maker + "# another file\n")
    assert not set(before) & set(digests())
    functions = Functions()
    assert [functions.load(f"one:{name}").name for name in "ab"] == ["a", "b"]  # which keys rng


def test_no_file(tmp_path, files):
    write(tmp_path, made="import maker\nf = maker.f\n", maker=STEP)
    functions = Functions(files)
    functions.load("maker:f").target.__module__ = "nowhere"
    with pytest.raises(DeclarationError, match="module nowhere has no file"):
        functions.digest("made:f")


def test_changed_since_the_import(tmp_path, files):
    write(tmp_path, steps=STEP, user="import steps\n" + STEP, untouched=STEP)
    functions = Functions(files)
    first = functions.digest("steps:f")
    functions.digest("untouched:f")
    functions.load("user:f")
    write(tmp_path, steps=STEP.replace("1", "2"), user=STEP, untouched=STEP)
    for name in ("steps:g", "user:f"):
        with pytest.raises(ChangedError, match=rf"{name[:-2]}\.py changed since it was imported"):
            functions.digest(name)
    assert functions.digest("steps:f") == first  # it runs as it was
    assert functions.digest("untouched:g") == expected(STEP, "2", "g")
    write(tmp_path, steps=STEP)
    assert functions.digest("steps:g") == expected(STEP, "2", "g")


def test_archive(tmp_path, files, monkeypatch):
    with zipfile.ZipFile(tmp_path / "more.zip", "w") as archive:
        archive.writestr("zipped.py", "from steps import f\n")
    monkeypatch.syspath_prepend(tmp_path / "more.zip")
    write(tmp_path, steps=STEP, uses="import zipped\n" + STEP)
    assert Functions(files).digest("uses:f") == expected("import zipped\n" + STEP, "", "f")


def test_old_bytecode(tmp_path, files):
    write(tmp_path, steps=STEP)
    source = tmp_path / "steps.py"
    os.utime(source, (1000, 1000))
    cached = py_compile.compile(str(source))
    os.utime(cached, (1000.1, 1000.1))
    write(tmp_path, steps=STEP.replace("1", "2"))
    os.utime(source, (1000.5, 1000.5))  # as long, and written in the same second
    assert Functions(files).load("steps:f").start()("a") == "a2"


def test_a_bad_declaration_beside(tmp_path, files):
    """What is wrong with another function of the file is said with its place."""
    step = """
import millrace

@millrace.transform
def optnone(text: str, title: str) -> str:
    return text

@millrace.transform
def up(text: str) -> str:
    return text.upper()
"""
    write(tmp_path, steps=step, more="from steps import up\n")

    def refused(name):
        sys.modules.pop("steps", None)
        with pytest.raises(DeclarationError) as raised:
            Functions(files).load(name)
        return explained(name, raised.value)

    own = refused("steps:optnone")
    assert own == (
        f'optnone: which column does it give? Declare output="name" ({tmp_path / "steps.py"}:4)'
    )
    assert refused("steps:up") == own + (
        "; that is another function, but steps is not imported, "
        "nor any function of it run, until it is mended"
    )
    assert refused("more:up").startswith(
        own + "; that is another function, but more is not imported"
    )


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENETUNREACH, "Network is unreachable"),
        socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"),
    ],
)
def test_no_network(monkeypatch, error):
    """An error that comes of a network that was taken away says how to have it."""
    wrapped = RuntimeError("no answer")
    wrapped.__context__ = ValueError()
    wrapped.__context__.__cause__ = error
    monkeypatch.delenv(NO_NETWORK, raising=False)
    assert not said(error).endswith(NEEDS_NETWORK)
    monkeypatch.setenv(NO_NETWORK, "1")
    for one in (error, wrapped):
        assert said(one).endswith(NEEDS_NETWORK)
    for other in (ValueError("no"), OSError(errno.ENOENT, "no file"), RuntimeError()):
        assert not said(other).endswith(NEEDS_NETWORK)
