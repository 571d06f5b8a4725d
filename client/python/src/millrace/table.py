"""The table of a batch: which tensors it has, and where they lie in its body.

Its bytes, of fixed width, are in docs/bytes.md. A reader keeps the layout that it saw last,
which is all but sizes and places: it looks again only at the descriptions of tensors that
are not what they were in the step before, such as document offsets. A layout makes the arrays
of a step from its body: those that travel as they are delivered are views of it, the others
are widened into one other buffer. It copies nothing else, and knows nothing of how a table came.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Collection
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from millrace.errors import BugError, UserError
from millrace.memory import ALIGNMENT, Spares
from millrace.runs import INT32, RUN, Runs

Array = npt.NDArray[Any]

MAGIC = b"MLT\x01"
END = 1  # the flag of a step that does not exist

HEAD = struct.Struct("<4sIQQQIIIIIIII")
ENTRY = struct.Struct("<HBBHBB5Q")
LINE = struct.Struct("<IIII")
ORIGIN = struct.Struct("<QIIII")
PLACE = 16  # bytes: two numbers

# The wire is little-endian; on such a machine these are NumPy's native types.
DTYPES = (None, np.dtype("u1"), np.dtype("<i4"), np.dtype("<i8"), np.dtype("<f4"))

# What tensors travel as: as they are delivered, in fewer bits, or as runs, without copies and with.
AS_IS, AS_INT32, AS_RUNS, AS_COPIES = range(4)

# The types that they may be delivered as, by that.
CODES: tuple[tuple[int, ...], ...] = (1, 2, 3, 4), (3,), (2, 3, 4), (2, 3)

# Keyword arguments of Hugging Face models that must be plain numbers.
NUMBERS = ("max_length_q", "max_length_k")

KEPT = "keep."  # begins the names of tensors that carry a source's kept columns
IMAGE = "image."  # begins the names of tensors that say whose an image is and where it goes

NO_IDS: Array = np.empty(0, INT32)

# Bytes below which an array of shared memory is copied: it costs less than what it would hold.
SMALL = 64 << 10

# The most bytes of widened arrays, beyond any host's share of a step: a larger table is broken.
MOST = 64 << 30

# The most microbatches of a table, which has 16 bits for their numbers.
MOST_PARTS = (1 << 16) - 1


class Place(NamedTuple):
    """A tensor of a layout."""

    number: int  # of the table's tensors
    name: str  # by which the trainer knows it: without what begins it
    dtype: np.dtype[Any]
    wire: int
    shape: tuple[int, ...]
    elements: int
    wide: int  # where it lies among those that are widened

    @property
    def narrow(self) -> bool:
        """Whether it travels as int32."""
        return self.wire == AS_INT32 or (self.wire == AS_IS and self.dtype == INT32)


MODEL, KEPT_COLUMNS, IMAGES = range(3)  # the lists of a Part


class Part(NamedTuple):
    """The tensors of a microbatch."""

    model: list[Place]
    kept: list[Place]
    images: list[Place]


class Arrays(NamedTuple):
    """The arrays of a microbatch, by name."""

    model: dict[str, Any]
    kept: dict[str, Any]  # by their whole names
    images: dict[str, Any]


class Choice(NamedTuple):
    """Which of the model's tensors a rank takes; none: all."""

    names: tuple[str, ...] = ()
    others: tuple[str, ...] | None = ()  # that ranks of other stages get; None: it is not known

    def has(self, name: str) -> bool:
        """Says whether the rank takes a tensor."""
        return not self.names or name in self.names

    def check(self, there: Collection[str]) -> None:
        """Raises UserError for names that are neither there nor of another stage."""
        if self.others is None:
            return
        known = dict.fromkeys([*there, *self.others])
        missing = [name for name in self.names if name not in known]
        if missing:
            raise UserError(
                f"tensors has {missing[0]!r}, which the job's batches have not: they have "
                f"{', '.join(known)}"
            )


ALL = Choice()


class Entry(NamedTuple):
    """An entry of a layout, as it is read."""

    raw: tuple[int, ...]
    place: Place
    size: int  # in the body; of runs, -1
    group: int  # which list of its Part it belongs to


class Layout:
    """Names, types and shapes of the tensors of a step, and how to make arrays of them.

    Steps often differ in the shapes of a few tensors only, so what ``last``, the layout of the
    step before, has alike is taken from it.
    """

    def __init__(
        self,
        raw: bytes,
        tensors: int,
        microbatches: int,
        choice: Choice = ALL,
        last: Layout | None = None,
    ) -> None:
        """Raises BugError for what no table has, UserError for what the choice has beyond it."""
        self.raw = raw
        self.tensors, self.microbatches = tensors, microbatches
        self.wide = 0  # bytes of what is widened
        self.sizes: list[int] = []  # in the body, by tensor; of runs, -1
        self.parts = [Part([], [], []) for _ in range(microbatches)]
        self._firsts: dict[int, Place] = {}  # tensors of microbatches
        self._runs: dict[int, Runs] = {}  # by tensor: those of the last step
        self._entries: list[Entry] = []
        entries = ENTRY.size * tensors
        self._names_raw = raw[entries:]
        alike = last is not None and (tensors, self._names_raw) == (last.tensors, last._names_raw)
        known = last._entries if last is not None and alike else []
        names = _names(self._names_raw, tensors)
        self._choice = choice
        self._model: dict[str, None] = {}  # names of the model's tensors, in order
        before = 0
        for number, entry in enumerate(ENTRY.iter_unpack(raw[:entries])):
            if not before <= entry[3] < microbatches or entry[0] >= len(names):
                raise BugError(f"tensor {number} of a table is {entry}")
            before = entry[3]
            if known and known[number].raw == entry and known[number].place.wide == self.wide:
                self._add(known[number])
            else:
                self._add(self._read(number, names[entry[0]], entry))
        if microbatches:
            choice.check(self._model)

    def _read(self, number: int, name: str, entry: tuple[int, ...]) -> Entry:
        _, code, wire, _, dims, zero, *shape = entry
        dtype = DTYPES[code] if wire < len(CODES) and code in CODES[wire] else None
        if dtype is None or dims > len(shape) or any(shape[dims:]) or zero:
            raise BugError(f"tensor {name} of a table is {entry}")
        elements = math.prod(shape[:dims])
        size = -1
        if wire not in (AS_RUNS, AS_COPIES):
            size = elements * (dtype.itemsize if wire == AS_IS else INT32.itemsize)
        group = MODEL
        if name.startswith(KEPT):
            group = KEPT_COLUMNS
        elif name.startswith(IMAGE):
            name, group = name[len(IMAGE) :], IMAGES
        place = Place(number, name, dtype, wire, tuple(shape[:dims]), elements, self.wide)
        return Entry(entry, place, size, group)

    def _add(self, entry: Entry) -> None:
        self._entries.append(entry)
        self.sizes.append(entry.size)
        place, microbatch = entry.place, entry.raw[3]
        first = self._firsts.setdefault(microbatch, place)
        if place.wire == AS_COPIES and not first.narrow:
            raise BugError(
                f"tensor {place.name} of a table has copies of {first.name}, which is {first}"
            )
        if entry.group == MODEL:
            self._model[place.name] = None
            if not self._choice.has(place.name):  # what is a copy of it is made all the same
                return
        self.parts[microbatch][entry.group].append(place)
        if place.wire != AS_IS:
            self.wide += -(-place.elements * place.dtype.itemsize // ALIGNMENT) * ALIGNMENT
            if self.wide > MOST:
                raise BugError(f"the tensors of a table have more than {MOST} bytes")

    def check(self, places: tuple[int, ...], size: int) -> None:
        """Raises BugError unless offsets and sizes lie in a body, and fit the shapes."""
        for number, want in enumerate(self.sizes):
            offset, given = places[2 * number], places[2 * number + 1]
            fits = given == want if want >= 0 else given % RUN == 0
            if not fits or offset % ALIGNMENT or offset + given > size:
                raise BugError(
                    f"tensor {number} of a table does not fit: {given} bytes at {offset} of "
                    f"{size}, its shape has {want}"
                )

    def arrays(self, body: Array, places: tuple[int, ...], spares: Spares) -> list[Arrays]:
        """Returns the arrays of each microbatch; body and places belong together, and fit.

        Of a body that is read-only, small arrays are copies. What is widened lies in spares.
        """
        wide = spares.take(self.wide)
        small = 0 if body.flags.writeable else SMALL

        def make(place: Place, microbatch: int) -> Any:
            number, name, dtype, wire, shape, elements, at = place
            if wire == AS_IS:
                array: Any = np.ndarray(shape, dtype, body, places[2 * number])
                if name in NUMBERS and not shape:
                    return int(array)
                return array.copy() if places[2 * number + 1] < small else array
            array = np.ndarray(elements, dtype, wide, at)
            offset = places[2 * number]
            if wire == AS_INT32:
                np.copyto(array, np.ndarray(elements, INT32, body, offset))
            else:
                raw = bytes(body[offset : offset + places[2 * number + 1]])
                runs = self._runs.get(number)
                if runs is None or runs.raw != raw:
                    self._runs[number] = runs = Runs(raw, shape[0] if shape else 1, name)
                copied = self._ids(microbatch, body, places) if wire == AS_COPIES else NO_IDS
                runs.write(array, copied)
            return array.reshape(shape)

        made = []
        for microbatch, part in enumerate(self.parts):
            made.append(
                Arrays(
                    {place.name: make(place, microbatch) for place in part.model},
                    {place.name: make(place, microbatch) for place in part.kept},
                    {place.name: make(place, microbatch) for place in part.images},
                )
            )
        return made

    def _ids(self, microbatch: int, body: Array, places: tuple[int, ...]) -> Array:
        """Returns what copies are of, if there are any."""
        first = self._firsts.get(microbatch)
        if first is None or not first.narrow:
            return NO_IDS
        return np.ndarray(first.elements, INT32, body, places[2 * first.number])


class Table(NamedTuple):
    """What a table says of a step. ``end``: there is no such step."""

    step: int
    generation: int  # of the job
    size: int  # bytes of the body
    sequence_length: int  # tokens of a row
    rows: int  # of the global batch
    end: bool
    topology: str  # with end: the data goes on, for ranks of this mesh
    joined: tuple[str, ...]  # sources that joined after the start
    layout: Layout
    places: tuple[int, ...]  # offset and size of each tensor
    lines: bytes  # the lineage, as lineage.py reads it
    origins: bytes


class Tables:
    """Reads tables of one stream. Not safe for several threads.

    ``spares`` is memory for what the tables tell of.
    """

    def __init__(self, choice: Choice = ALL) -> None:
        self.spares = Spares()
        self._choice = choice
        self._layout = Layout(b"", 0, 0)

    def end(self) -> None:
        """Lets go of spare memory, whoever holds the stream. Safe beside the other methods."""
        self.spares = Spares()

    def read(self, raw: memoryview) -> Table:
        """Returns the table in raw, of which it keeps no view. Raises BugError, and UserError."""
        if len(raw) < HEAD.size or raw[: len(MAGIC)] != MAGIC:
            raise BugError(f"{len(raw)} bytes that begin with {bytes(raw[:4])!r} are not a table")
        head = HEAD.unpack_from(raw)
        _, flags, step, generation, size, length, rows, parts, tensors, *sizes = head
        layout, lines, documents, texts = sizes
        places = HEAD.size + layout
        at = places + PLACE * tensors
        origins = at + LINE.size * lines
        text = origins + ORIGIN.size * documents
        if text + texts != len(raw) or ENTRY.size * tensors > layout or layout % 8:
            raise BugError(f"a table of {len(raw)} bytes says that it has {text + texts}")
        if flags & ~END or parts > MOST_PARTS:
            raise BugError(f"a table has the flags {flags:#x} and {parts} microbatches")
        known = self._known(raw[HEAD.size : places], tensors, parts)
        numbers = struct.unpack_from(f"<{2 * tensors}Q", raw, places)
        known.check(numbers, size)
        topology, *joined = _texts(raw[text:])
        return Table(
            step,
            generation,
            size,
            length,
            rows,
            bool(flags),
            topology,
            tuple(joined),
            known,
            numbers,
            bytes(raw[at:origins]),
            bytes(raw[origins:text]),
        )

    def _known(self, raw: memoryview, tensors: int, parts: int) -> Layout:
        """Returns the layout in raw: the last one, if that is the same."""
        last = self._layout
        if tensors != last.tensors or parts != last.microbatches or raw != last.raw:
            self._layout = last = Layout(bytes(raw), tensors, parts, self._choice, last)
        return last


def _names(raw: bytes, most: int) -> list[str]:
    """Returns the names behind the entries of a layout, which ends with up to 7 zeros."""
    names: list[str] = []
    at = 0
    while len(names) < most and len(raw) - at >= 2:
        size = raw[at] | raw[at + 1] << 8
        if size == 0 and len(raw) - at < 8:
            break
        at += 2 + size
        if at > len(raw):
            raise BugError("a name in a table is cut off")
        names.append(str(raw[at - size : at], "utf-8", "replace"))
    if len(raw) - at >= 8 or any(raw[at:]):
        raise BugError(f"{len(raw) - at} bytes follow the names of a table")
    return names


def _texts(raw: memoryview) -> list[str]:
    texts: list[str] = []
    at = 0
    while at + 4 <= len(raw):
        end = at + 4 + int.from_bytes(raw[at : at + 4], "little")
        if end > len(raw):
            break
        texts.append(str(raw[at + 4 : end], "utf-8", "replace"))
        at = end
    if at != len(raw) or not texts:
        raise BugError("a text in a table is cut off")
    return texts
