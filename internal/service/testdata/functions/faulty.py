"""Functions that end their worker, or give what they must not."""

import os
import time

import numpy as np

import millrace


@millrace.transform(output="text")
def deadly(text: str, id: int) -> str:
    """Ends its worker at some rows, in three ways."""
    if id == 7:
        os._exit(3)
    if id == 13:
        os.abort()
    if id == 33:
        hog = []
        while True:
            hog.append(np.ones(1 << 22))
    return text.upper()


@millrace.transform("map_batches")
def fewer(text: list[str]) -> list[str]:
    return text[1:]


@millrace.transform
def garbage(text: str) -> str:
    """Has its answers overwritten, as a library could that writes where it must not."""
    from millrace import _columns

    def write(self, memory) -> None:  # type: ignore[no-untyped-def]
        memory[: self.size()] = b"\xff" * self.size()

    _columns.Batch.write = write  # type: ignore[method-assign]
    return text


@millrace.transform
def killed(text: str) -> str:
    os.kill(os.getpid(), 9)
    return text


@millrace.transform(output="text")
def hangs(text: str, id: int) -> str:
    """Never returns at one row."""
    if id == 77:
        time.sleep(1e6)
    return text.upper()


@millrace.transform(output="text")
def hangs_on(text: str, id: int) -> str:
    """Never returns from one row on."""
    if id >= 77:
        time.sleep(1e6)
    return text.upper()
