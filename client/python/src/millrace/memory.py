"""Memory of arrays that is used again when the last array over it is gone.

Fresh memory of megabytes costs more than what is written to it: the system zeroes each page and
takes it back a step later. So what a step's arrays lie in is kept for the next steps. An array
holds its memory as any NumPy array does, and so does whatever views it or shares it by a
protocol of Python's (a tensor of PyTorch, a memoryview): nothing is used again under it.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections import deque
from collections.abc import MutableSequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

ALIGNMENT = 64  # of tensors in a body; kept for addresses too

# The most buffers that are kept while nothing lies in them: of the steps that are read ahead by
# default, the trainer's and the one that comes.
SPARES = 4

# What a buffer has beyond what it is made for, as a fraction, so that the next one that is a
# little larger fits; and from how much less a buffer is too large to be kept busy.
ROOM, LEAST = 8, 2


class Lent(np.ndarray):
    """Bytes that are given back when nothing views them any more: ``what`` is added to ``to``.

    NumPy lets a view of a view refer to the first plain array that has the memory, so an array
    could not say when its views are gone; it stops at another type. So what a Lent lies over
    must be no array, and no memoryview of one, either.
    """

    to: MutableSequence[Any]
    what: Any

    def __del__(self) -> None:
        kept = self.__dict__
        if kept:  # a view of this type has none
            kept["to"].append(kept["what"])


def lend(over: Any, offset: int, size: int, to: MutableSequence[Any], what: Any) -> Array:
    """Returns bytes of a buffer, such as an mmap. See Lent."""
    lent = Lent((size,), np.uint8, over, offset)
    lent.to, lent.what = to, what
    return lent


class Spares:
    """Buffers for bytes that come again and again in about the same size.

    Safe for several threads.
    """

    def __init__(self) -> None:
        self._free: deque[ctypes.Array[ctypes.c_ubyte]] = deque(maxlen=SPARES)

    def take(self, size: int) -> Array:
        """Returns writable bytes that start on a cache line, with whatever was in them."""
        with contextlib.suppress(IndexError):
            room = self._free.pop()
            if size <= len(room) <= ALIGNMENT + LEAST * (size + size // ROOM):
                return lend(room, 0, size, self._free, room)
        # Memory of NumPy's, which has large pages, and yet no array.
        most = size + size // ROOM + ALIGNMENT
        room = (ctypes.c_ubyte * most).from_buffer(aligned(most).data)
        return lend(room, 0, size, self._free, room)


def aligned(size: int) -> Array:
    """Returns an uninitialised, writable buffer that starts on a cache line."""
    room = np.empty(size + ALIGNMENT, np.uint8)
    start = -room.ctypes.data % ALIGNMENT
    return room[start : start + size]
