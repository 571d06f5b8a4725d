"""Runs: how tensors travel whose elements follow from others, such as positions, masks and labels.

A run is three int32: how many elements it has, the first one, and by how much each is more than
the one before it, 0 or 1; or COPIED: they are those of the microbatch's first tensor, from a place
on. The same runs come again and again, as those of rows that one document fills, so what is known
of them is kept.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from millrace.errors import BugError

Array = npt.NDArray[Any]

INT32, RUN = np.dtype("<i4"), 12  # bytes of a run
COPIED = 2

# Elements of a run, on the average, from which on runs are written one by one.
LONG = 64

# The most elements that are kept to copy rising runs from: 4 MB.
COUNTED = 1 << 20

# Of how many runs something is known at the most, and the most bytes of what is kept as it was
# written: 4 MB in all.
MOST_KNOWN, MOST_KEPT = 64, 64 << 10

_counted: Array = np.empty(0, INT32)


def _counting(first: int, end: int) -> Array:
    """Returns the numbers from first to before end."""
    global _counted
    if first < 0 or end > COUNTED:
        return np.arange(first, end)
    counted = _counted  # of which another thread may make another one
    if counted.size < end:
        counted = _counted = np.arange(min(max(2 * end, 1 << 13), COUNTED), dtype=INT32)
    return counted[first:end]


class Runs:
    """Writes runs, those that came twice before in a few calls. Not safe for several threads.

    The bytes of up to 2 * MOST_KNOWN runs are kept, and MOST_KEPT bytes for each of half of them.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], _Known] = {}
        self._once: set[tuple[Any, ...]] = set()  # what was written once

    def write(self, raw: bytes, out: Array, copied: Array, name: str) -> None:
        """Writes the elements of runs into out; ``copied`` is what copies are of, as it travels.

        Raises BugError, with the tensor's name, unless the runs are as many elements as out has,
        and copy none that is not there.
        """
        key = (raw, out.size, out.dtype.char, copied.size)
        known = self._known.get(key)
        if known is not None:
            known.write(out, copied)
            return
        runs = np.frombuffer(raw, INT32).reshape(-1, 3)
        short = len(runs) * LONG > out.size
        if not (_write_short if short else _write)(runs, out, copied):
            raise BugError(f"tensor {name} has runs that are not {out.size} elements")
        if key not in self._once:
            _room(self._once)
            self._once.add(key)
            return
        _room(self._known)
        self._once.discard(key)
        self._known[key] = _Known(runs, out, copied)


def _room(kept: set[Any] | dict[Any, Any]) -> None:
    """Makes room for one more."""
    if len(kept) >= MOST_KNOWN:
        kept.clear()


class _Known:
    """What is known of runs that were written into out, so that it takes less to do it again."""

    def __init__(self, runs: Array, out: Array, copied: Array) -> None:
        starts = np.cumsum(runs[:, 0], dtype=np.int64) - runs[:, 0]
        copies = runs[:, 2] == COPIED
        self._whole: Array | None = None
        self._part: tuple[slice, slice] | None = None  # what is copied at once, and of what
        if copies.any():
            shifts = runs[copies, 1] - starts[copies]
            if (shifts == shifts[0]).all():
                shift = int(shifts[0])
                at, end = max(-shift, 0), min(copied.size - shift, out.size)
                self._part = slice(at, end), slice(at + shift, end + shift)
                runs, starts = runs[~copies], starts[~copies]
        elif out.nbytes <= MOST_KEPT:
            self._whole = out.copy()
            return
        single = (runs[:, 0] == 1) & (runs[:, 2] != COPIED)
        self._places, self._values = starts[single], runs[single, 1]
        self._rest = list(zip(starts[~single].tolist(), runs[~single].tolist()))

    def write(self, out: Array, copied: Array) -> None:
        if self._whole is not None:
            np.copyto(out, self._whole)
            return
        if self._part is not None:
            out[self._part[0]] = copied[self._part[1]]
        if self._places.size:
            out[self._places] = self._values
        for at, run in self._rest:
            _put(out, at, run, copied)


def _put(out: Array, at: int, run: list[int], copied: Array) -> None:
    length, first, step = run
    if step == 0:
        out[at : at + length] = first
    elif step == COPIED:
        out[at : at + length] = copied[first : first + length]
    else:
        out[at : at + length] = _counting(first, first + length)


def _write(runs: Array, out: Array, copied: Array) -> bool:
    """Writes runs one by one. Returns False if they cannot be."""
    at, size, most = 0, out.size, copied.size
    for run in runs.tolist():
        length, first, step = run
        if not 1 <= length <= size - at or not 0 <= step <= COPIED:
            return False
        if step == COPIED and not 0 <= first <= most - length:
            return False
        _put(out, at, run, copied)
        at += length
    return at == size


def _write_short(runs: Array, out: Array, copied: Array) -> bool:
    """Writes runs all at once, which is quicker where they are short."""
    length, first, step = runs.astype(np.int64).T
    if length.sum() != out.size or (length < 1).any() or ((step < 0) | (step > COPIED)).any():
        return False
    rises, copies = step != 0, step == COPIED
    if ((first < 0) | (first + length > copied.size))[copies].any():
        return False
    array = np.repeat(first - rises * (np.cumsum(length) - length), length)
    if rises.any():
        array += np.arange(out.size) * np.repeat(rises, length)
    if copies.any():
        of = np.repeat(copies, length)
        array[of] = copied[array[of]]
    np.copyto(out, array, casting="same_kind")
    return True
