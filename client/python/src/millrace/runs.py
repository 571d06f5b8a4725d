"""Runs: how tensors travel whose elements follow from others, such as positions, masks and labels.

A run is three int32: how many elements it has, the first one, and by how much each is more than
the one before it, 0 or 1; or COPIED: they are those of the microbatch's first tensor, from a place
on. A tensor often has the same runs from step to step, so what is known of them is kept.
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
    """The runs of one tensor, which are written again and again. raw: their bytes.

    rows: of equal length, into which the tensor may be cut.
    """

    def __init__(self, raw: bytes, rows: int, name: str) -> None:
        self.raw, self._rows, self._name = raw, rows, name
        self._written = False  # as they are written, they are checked
        self._known: _Known | None = None

    def write(self, out: Array, copied: Array) -> None:
        """Writes the elements into out; ``copied`` is what copies are of, as it travels.

        Out and copied have the same sizes each time. Raises BugError unless the runs are as many
        elements as out has, and copy none that is not there.
        """
        if not self._written:
            runs = np.frombuffer(self.raw, INT32).reshape(-1, 3)
            short = len(runs) * LONG > out.size
            if not (_write_short if short else _write)(runs, out, copied):
                raise BugError(f"tensor {self._name} has runs that are not {out.size} elements")
            self._written = True
            return
        if self._known is None:
            self._known = _Known(self.raw, out, copied, self._rows)
        self._known.write(out, copied)


class _Known:
    """What is known of runs that were written, so that writing them again takes a few calls."""

    def __init__(self, raw: bytes, out: Array, copied: Array, rows: int) -> None:
        runs = np.frombuffer(raw, INT32).reshape(-1, 3)
        starts = np.cumsum(runs[:, 0], dtype=np.int64) - runs[:, 0]
        copies = runs[:, 2] == COPIED
        self._row: Array | None = None  # if all rows are the same
        self._part, self._of = slice(0), slice(0)  # what is copied at once
        if copies.any():
            shifts = runs[copies, 1] - starts[copies]
            if (shifts == shifts[0]).all():
                shift = int(shifts[0])
                at, end = max(-shift, 0), min(copied.size - shift, out.size)
                self._part, self._of = slice(at, end), slice(at + shift, end + shift)
                runs, starts = runs[~copies], starts[~copies]
        elif rows > 1 and len(runs) % rows == 0:
            each = runs.reshape(rows, -1, 3)
            if (each == each[0]).all():
                self._row = np.empty(out.size // rows, out.dtype)
                _write(each[0], self._row, copied)
        single = (runs[:, 0] == 1) & (runs[:, 2] != COPIED)
        self._places, self._values = starts[single], runs[single, 1]
        self._rest = list(zip(starts[~single].tolist(), runs[~single].tolist()))

    def write(self, out: Array, copied: Array) -> None:
        if self._row is not None:
            out.reshape(-1, self._row.size)[:] = self._row
            return
        out[self._part] = copied[self._of]
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
