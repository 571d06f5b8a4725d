"""Functions that the tests of internal/worker run, good and bad ones."""

# ruff: noqa: UP045 - Python 3.9 cannot evaluate X | None, which the decorator does
from __future__ import annotations

import os
import signal
import sys
import threading
import time
from typing import Optional, TypedDict

import numpy as np
import numpy.typing as npt

import millrace
from millrace.transform import Tokens


@millrace.transform
def upper(text: str) -> str:
    return text.upper()


class Row(TypedDict):
    text: Optional[str]
    raw: bytes
    n: Optional[int]
    x: float
    yes: bool
    ids: Tokens
    parts: list[str]
    deep: list[list[Optional[int]]]


@millrace.transform
def same(
    text: Optional[str],
    raw: bytes,
    n: Optional[int],
    x: float,
    yes: bool,
    ids: Tokens,
    parts: list[str],
    deep: list[list[Optional[int]]],
) -> Row:
    return Row(text=text, raw=raw, n=n, x=x, yes=yes, ids=ids.copy(), parts=parts, deep=deep)


class Said(TypedDict):
    text: str


@millrace.transform
def lists(tags: list[str], scores: list[float], more: Optional[list[Optional[float]]]) -> Said:
    return Said(text=f"{tags} {scores} {more}")


@millrace.transform("filter")
def tagged(tags: list[str]) -> bool:
    return len(tags) > 0


@millrace.transform("filter")
def long(text: str) -> bool:
    return len(text) > 3


@millrace.transform("flat_map")
def words(text: str) -> list[str]:
    return text.split()


@millrace.transform("map_batches", output={"text": str, "size": int})
def sizes(text: list[str]):
    return {"text": text, "size": np.array([len(t) for t in text])}


class Pass(TypedDict):
    n: npt.NDArray[np.int64]


@millrace.transform("map_batches")
def nothing(n: npt.NDArray[np.int64]) -> Pass:
    return {"n": n}


@millrace.transform("map_batches")
def nothing_text(text: list[str]) -> list[str]:
    return text


@millrace.transform
def drawn(text: str, rng: np.random.Generator) -> str:
    return f"{text} {rng.integers(1 << 30)}"


@millrace.transform
def fails(text: str) -> str:
    if "bad" in text:
        raise ValueError(f"{text} is not good")
    return text


@millrace.transform("map_batches")
def fails_batch(text: list[str]) -> list[str]:
    if any("bad" in t for t in text):
        raise ValueError("one is not good")
    return text


@millrace.transform(output="n")
def wrong(text: str) -> int:
    return text if "bad" in text else len(text)


@millrace.transform("map_batches")
def fewer(text: list[str]) -> list[str]:
    return text[1:]


kept = []
hoard = []


@millrace.transform
def hoards(text: str) -> str:
    """Keeps as many MiB as the text says."""
    if text.isdigit():
        hoard.append(b"x" * (int(text) << 20))
    return text


@millrace.transform("map_batches")
def keeps(n: npt.NDArray[np.int64]) -> Pass:
    kept.append(n)
    return {"n": n + 1}


@millrace.transform
def dies(text: str) -> str:
    """Ends its worker in the way that the text says."""
    if text == "exit":
        os._exit(3)
    if text == "segv":
        os.kill(os.getpid(), signal.SIGSEGV)
    if text == "abrt":
        os.abort()
    if text == "kill":
        print("so long")
        os.kill(os.getpid(), signal.SIGKILL)
    if text == "hang":
        time.sleep(1000)
    if text.startswith("closes"):
        os.closerange(3, 1000)
    if text == "closes and goes on":
        time.sleep(1000)
    if text == "hog":
        hog = []
        while True:
            hog.append(np.ones(1 << 23))
    if text.startswith("spike "):  # MiB that are given back at once
        np.ones(int(text[6:]) << 17)
    if text == "print":
        for i in range(20000):
            print("line", i, "x" * 100)
    if text == "sysexit":
        sys.exit("no more")
    return text


@millrace.transform("map", output="text")
class Spiky:
    def __call__(self, text: str) -> str:
        return dies(text)


@millrace.transform("map", output="text")
class SpikySetup:
    def __init__(self) -> None:
        dies("spike 200")

    def __call__(self, text: str) -> str:
        return text


@millrace.transform("map", output="text")
class Heavy:
    def __init__(self) -> None:
        self.model = np.ones(100 << 17)

    def __call__(self, text: str) -> str:
        time.sleep(0.01)
        return text


@millrace.transform
def slow(text: str) -> str:
    time.sleep(0.05 if text.startswith("slow") else 0)
    return text


class Model:
    def __init__(self) -> None:
        time.sleep(0.05)
        self.factor = 2


@millrace.transform("map", output="text")
class Doubles:
    def __init__(self) -> None:
        self.model = Model()

    def __call__(self, text: str) -> str:
        return text * self.model.factor


@millrace.transform("map")
class BadSetup:
    def __init__(self) -> None:
        raise RuntimeError("no model")

    def __call__(self, text: str) -> str:
        return text


@millrace.transform("map")
class DeadlySetup:
    def __init__(self) -> None:
        os._exit(4)

    def __call__(self, text: str) -> str:
        return text


calls = 0


@millrace.transform
def counts(text: str) -> str:
    global calls
    calls += 1
    return f"{text} {calls}"


@millrace.transform("filter")
def every_other(text: str) -> bool:
    counts(text)
    return calls % 2 == 0


@millrace.transform
def network(text: str) -> str:
    import socket

    return ",".join(sorted(name for _, name in socket.if_nameindex()))


@millrace.transform
def fetched(text: str) -> str:
    import socket

    try:
        socket.create_connection(("192.0.2.1", 9), timeout=1).close()
    except OSError as error:
        if text == "wrapped":
            raise RuntimeError("no answer") from error
        raise
    return text


@millrace.transform
def child(text: str) -> str:
    """Leaves a process behind."""
    import subprocess

    process = subprocess.Popen(["sleep", "1000"])
    if text == "exit":
        os._exit(5)
    return str(process.pid)


@millrace.transform
def leaves(text: str) -> str:
    """Ends, and leaves a process that has all its descriptors, in a session of its own."""
    ready, tell = os.pipe()
    if os.fork() == 0:
        os.setsid()
        with open(text, "a") as file:
            file.write(f"{os.getpid()} ")
        os.write(tell, b"!")
        time.sleep(1000)
        os._exit(0)
    os.read(ready, 1)
    os.kill(os.getpid(), signal.SIGKILL)
    return ""


@millrace.transform
def spoils(text: str) -> str:
    """Writes over its output memory from a thread, as a broken library would."""
    import mmap

    def write() -> None:
        for fd in os.listdir("/proc/self/fd"):
            try:
                if "millrace-batch" in os.readlink(f"/proc/self/fd/{fd}"):
                    size = os.fstat(int(fd)).st_size
                    mmap.mmap(int(fd), size)[:] = bytes([255]) * size
            except OSError:
                continue

    if text == "garbage":

        def later() -> None:
            for _ in range(200):
                write()

        threading.Thread(target=later, daemon=True).start()
        time.sleep(0.02)
    return text


def plain(text: str) -> str:
    return text
