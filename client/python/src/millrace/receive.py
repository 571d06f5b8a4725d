"""From a stream of frames to the arrays of one step.

The bodies are joined in one buffer, 64-byte aligned. Arrays that travel narrower
than they are delivered are widened into memory of their own; every other is a view
of the buffer, and whoever keeps one of those keeps the whole step's buffer.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from millrace import messages
from millrace.errors import BugError, UserError
from millrace.lineage import Lines
from millrace.memory import aligned
from millrace.table import ALL, IMAGE, KEPT, NUMBERS, Choice
from millrace.wire import WireError

Array = npt.NDArray[Any]

# The wire is little-endian; on such a machine these are NumPy's native types.
DTYPES: dict[str, np.dtype[Any]] = {
    "uint8": np.dtype("u1"),
    "int32": np.dtype("<i4"),
    "int64": np.dtype("<i8"),
    "float32": np.dtype("<f4"),
}

# What tensors may travel as, and what may be made of it: as they are, in fewer bits, or as
# runs of (length, first, step 0 or 1).
WIRES: dict[str, tuple[str, ...]] = {
    "": tuple(DTYPES),
    "int32": ("int64",),
    "runs": ("int32", "int64", "float32"),
}

HEADER = 1024  # bytes of a .npy file in which its header ends, and more

# The model's keys that count patches or images, not tokens.
VISION = ("pixel_values", "image_grid_thw")


def writable(array: Array) -> Array:
    """Returns the array, or a copy if it is a view of shared memory: PyTorch writes to any."""
    return array if array.flags.writeable else array.copy()


class Extra(NamedTuple):
    """What a kept column holds for one document, such as the bytes of an image."""

    row: int  # in the microbatch
    document: int  # in the row
    data: Array  # uint8

    def array(self) -> Array:
        """Returns the array that a ``pixels`` or ``waveform`` step put into the column.

        It shares the memory of ``data`` where that is aligned for its type. A column that
        no such step made raises a UserError.
        """
        file = io.BytesIO(self.data[:HEADER].tobytes())
        try:
            np.lib.format.read_magic(file)
            shape, _, dtype = np.lib.format.read_array_header_1_0(file)
            flat = self.data[file.tell() :].view(dtype)
            return np.require(flat, requirements="A").reshape(shape)
        except ValueError as error:
            raise UserError(
                f"the value is not an array ({error}): in the job, give the column a pixels or a "
                "waveform step, or read its bytes, which are data"
            ) from error


class Microbatch(NamedTuple):
    """What one call of next() returns, and its lineage, as lineage.read() takes it."""

    arrays: dict[str, Any]
    rows: Lines | list[bytes]
    kept: dict[str, Any]  # arrays of kept columns, by their names on the wire
    images: dict[str, Array]  # the "image." arrays, by the rest of their names

    def extras(self) -> dict[str, list[Extra]]:
        """Returns the values of each kept column."""
        columns = [name[len(KEPT) :] for name in self.kept if not name.endswith(".index")]
        return {column: self._extras(column) for column in columns}

    def _extras(self, column: str) -> list[Extra]:
        values, index = self.kept[KEPT + column], self.kept[f"{KEPT}{column}.index"]
        places = ((int(r), int(d), int(at), int(size)) for r, d, at, size in index)
        return [Extra(r, d, values[at : at + size]) for r, d, at, size in places]


def parted(arrays: dict[str, Any], rows: list[bytes]) -> Microbatch:
    """Keeps the model's arrays apart from those of kept columns and of images' places."""
    kept = {name: value for name, value in arrays.items() if name.startswith(KEPT)}
    images = {name[len(IMAGE) :]: v for name, v in arrays.items() if name.startswith(IMAGE)}
    model = {name: v for name, v in arrays.items() if not name.startswith((KEPT, IMAGE))}
    return Microbatch(model, rows, kept, images)


class Step(NamedTuple):
    """A rank's part of one step. ``end``: there is no such step."""

    step: int
    end: bool
    microbatches: list[Microbatch]
    size: int  # bytes that came for the arrays
    sequence_length: int = 0  # tokens of a row
    rows: int = 0  # of the global batch
    joined: tuple[str, ...] = ()  # sources beyond those of the JoinReply
    topology: str = ""  # with end: the data goes on, for ranks of this mesh
    generation: int = 0  # of the job; 0 of a service that does not say it


def receive(frames: Iterator[bytes], asked: int | None, choice: Choice = ALL) -> Step:
    """Reads the answer to the request for a step; None takes any.

    Raises BugError if the frames break the protocol, UserError for what the choice has beyond
    them; passes on what frames raises.
    """
    header, first = _open(frames, asked)
    step = header.step
    if header.end_of_data:
        for _ in frames:  # to the end, so that the call's status is seen
            pass
        return Step(step, True, [], 0, topology=header.topology)
    body = aligned(header.body_size)
    filled = _fill(body, 0, first, step)
    for frame in frames:
        filled = _fill(body, filled, _split(frame, step)[1], step)
    if filled != header.body_size:
        raise BugError(f"step {step} ended after {filled} of {header.body_size} bytes")
    parts = [
        parted({t.name: _view(body, t, step) for t in _chosen(part.tensors, choice)}, part.rows)
        for part in header.microbatches
    ]
    if not parts:
        raise BugError(f"step {step} has no microbatch")
    return Step(
        step,
        False,
        parts,
        header.body_size,
        header.sequence_length,
        header.rows,
        tuple(header.joined),
        generation=header.generation,
    )


def _chosen(tensors: list[messages.Tensor], choice: Choice) -> list[messages.Tensor]:
    """Returns the tensors of a choice, and those that are not the model's."""
    model = [tensor.name for tensor in tensors if not tensor.name.startswith((KEPT, IMAGE))]
    choice.check(model)
    return [tensor for tensor in tensors if tensor.name not in model or choice.has(tensor.name)]


def _open(frames: Iterator[bytes], step: int | None) -> tuple[messages.BatchHeader, memoryview]:
    frame = next(frames, None)
    if frame is None:
        raise BugError(f"the answer for step {step} has no frame")
    raw, body = _split(frame, step or 0)
    try:
        header = messages.BatchHeader.decode(raw)
    except WireError as error:
        raise BugError(f"reading the header of step {step}: {error}") from error
    if step not in (None, header.step):
        raise BugError(f"asked for step {step}, got step {header.step}")
    return header, body


def _split(frame: bytes, step: int) -> tuple[memoryview, memoryview]:
    try:
        return messages.split_frame(frame)
    except WireError as error:
        raise BugError(f"reading a frame of step {step}: {error}") from error


def _fill(body: Array, at: int, part: memoryview, step: int) -> int:
    end = at + len(part)
    if end > body.size:
        raise BugError(f"step {step} has more than the {body.size} bytes announced")
    body[at:end] = np.frombuffer(part, np.uint8)
    return end


def _view(body: Array, tensor: messages.Tensor, step: int) -> Any:
    dtype = DTYPES.get(tensor.dtype)
    if dtype is None or tensor.dtype not in WIRES.get(tensor.wire, ()):
        as_what = f" as {tensor.wire!r}" if tensor.wire else ""
        raise BugError(f"tensor {tensor.name} of step {step} has dtype {tensor.dtype!r}{as_what}")
    wire = DTYPES["int32"] if tensor.wire else dtype
    size, end = math.prod(tensor.shape), tensor.offset + tensor.size
    units = tensor.size // wire.itemsize
    fits = units % 3 == 0 if tensor.wire == "runs" else units == size
    if end > body.size or tensor.size % wire.itemsize or not fits:
        raise BugError(
            f"tensor {tensor.name} of step {step} does not fit: {tensor.size} bytes at "
            f"{tensor.offset} of {body.size}, shape {tensor.shape} of {tensor.wire or wire.name}"
        )
    array = body[tensor.offset : end].view(wire)
    if tensor.wire == "runs":
        array = _expanded(array.reshape(-1, 3), size, tensor.name, step)
    if array.dtype != dtype:
        wide = aligned(size * dtype.itemsize).view(dtype)
        np.copyto(wide, array, casting="same_kind")
        array = wide
    array = array.reshape(tensor.shape)
    return int(array) if tensor.name in NUMBERS and array.ndim == 0 else array


def _expanded(runs: Array, size: int, name: str, step: int) -> Array:
    """Returns the int64 elements of runs, which are size."""
    length, first, rise = runs.astype(np.int64).T
    if length.sum() != size or (length < 1).any() or (rise & ~1).any():
        raise BugError(f"tensor {name} of step {step} has runs that are not {size} elements")
    array = aligned(size * 8).view(np.int64)
    np.copyto(array, np.repeat(first - rise * (np.cumsum(length) - length), length))
    if rise.any():
        array += np.arange(size) * np.repeat(rise, length)
    return array
