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


class Given(NamedTuple):
    """What the arrays of a step are made of. Offsets and sizes are in bytes."""

    body: memoryview
    places: tuple[int, ...]  # in the body: one tensor's offset and size after the other's
    wide: Array  # memory for what is widened
    small: int  # bytes below which an array is a copy
    runs: Runs


class Section:
    """The tensors of one microbatch, as entries describe them, and what makes arrays of them."""

    def __init__(self, first: int, wide: int) -> None:
        """first: the number of its first tensor. wide: where what is widened begins."""
        self.raw = b""  # its entries
        self.first, self.begins, self.ends = first, wide, wide
        self.sizes: list[int] = []  # in the body, by tensor; of runs, -1
        self.names: list[str] = []  # of the model's tensors
        self.part = Part([], [], [])
        self._source: Place | None = None  # the first tensor, which copies are of

    def add(self, entry: tuple[int, ...], name: str, choice: Choice) -> None:
        """Takes the next tensor. Raises BugError for what no table has."""
        _, code, wire, _, dims, zero, *shape = entry
        dtype = DTYPES[code] if wire < len(CODES) and code in CODES[wire] else None
        if dtype is None or dims > len(shape) or any(shape[dims:]) or zero:
            raise BugError(f"tensor {name} of a table is {entry}")
        elements = math.prod(shape[:dims])
        group = MODEL
        if name.startswith(KEPT):
            group = KEPT_COLUMNS
        elif name.startswith(IMAGE):
            name, group = name[len(IMAGE) :], IMAGES
        number = self.first + len(self.sizes)
        place = Place(number, name, dtype, wire, tuple(shape[:dims]), elements, self.ends)
        size = -1
        if wire not in (AS_RUNS, AS_COPIES):
            size = elements * (dtype.itemsize if wire == AS_IS else INT32.itemsize)
        self.sizes.append(size)
        self._source = source = self._source or place
        if wire == AS_COPIES and not source.narrow:
            raise BugError(
                f"tensor {name} of a table has copies of {source.name}, which is {source}"
            )
        if group == MODEL:
            self.names.append(name)
            if not choice.has(name):  # what is a copy of it is made all the same
                return
        self.part[group].append(place)
        if wire != AS_IS:
            self.ends += -(-elements * dtype.itemsize // ALIGNMENT) * ALIGNMENT
            if self.ends > MOST:
                raise BugError(f"the tensors of a table have more than {MOST} bytes")

    def arrays(self, given: Given) -> Arrays:
        """Returns the arrays. Raises BugError for runs that do not fit."""
        model, kept, images = self.part
        return Arrays(
            self._made(model, given),
            self._made(kept, given) if kept else {},
            self._made(images, given) if images else {},
        )

    def _made(self, part: list[Place], given: Given) -> dict[str, Any]:
        body, places, wide, small, runs = given
        made: dict[str, Any] = {}
        for number, name, dtype, wire, shape, elements, at in part:
            offset, size = places[2 * number], places[2 * number + 1]
            if wire == AS_INT32:
                array: Any = np.ndarray(shape, dtype, wide, at)
                np.copyto(array, np.ndarray(shape, INT32, body, offset))
            elif wire == AS_IS:
                array = np.ndarray(shape, dtype, body, offset)
                if not shape and name in NUMBERS:
                    array = int(array)
                elif size < small:
                    array = array.copy()
            else:
                array = np.ndarray(elements, dtype, wide, at)
                ids = self._ids(body, places) if wire == AS_COPIES else NO_IDS
                runs.write(bytes(body[offset : offset + size]), array, ids, name)
                array = array.reshape(shape)
            made[name] = array
        return made

    def _ids(self, body: memoryview, places: tuple[int, ...]) -> Array:
        """Returns what copies are of, if there are any."""
        source = self._source
        if source is None or not source.narrow:
            return NO_IDS
        return np.ndarray(source.elements, INT32, body, places[2 * source.number])


class Layout:
    """Names, types and shapes of the tensors of a step, and how to make arrays of them.

    Steps often differ in the shapes of a few tensors only, so microbatches that ``last``, the
    layout of the step before, has alike are taken from it.
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
        self.sections: list[Section] = []
        self._runs: Runs = last._runs if last is not None else Runs()
        entries = raw[: ENTRY.size * tensors]
        self._texts = raw[len(entries) :]
        self._names: list[str]
        known: list[Section] = []
        if last is not None and (tensors, self._texts) == (last.tensors, last._texts):
            known, self._names = last.sections, last._names
        else:
            self._names = _names(self._texts, tensors)
        at = wide = 0
        for number in range(microbatches):
            section = known[number] if number < len(known) else None
            if section is None or not _alike(section, entries, at, wide, number):
                section = _section(entries, at, wide, number, self._names, choice)
            self.sections.append(section)
            at, wide = at + len(section.raw), section.ends
        if at < len(entries):
            entry = ENTRY.unpack_from(entries, at)
            raise BugError(f"tensor {at // ENTRY.size} of a table is {entry}")
        self.wide = wide  # bytes of what is widened
        if microbatches:
            choice.check(dict.fromkeys(name for part in self.sections for name in part.names))

    def check(self, places: tuple[int, ...], size: int) -> None:
        """Raises BugError unless offsets and sizes lie in a body, and fit the shapes."""
        at = 0
        for section in self.sections:
            for want in section.sizes:
                offset, given = places[at], places[at + 1]
                fits = given == want if want >= 0 else given % RUN == 0
                if not fits or offset % ALIGNMENT or offset + given > size:
                    raise BugError(
                        f"tensor {at // 2} of a table does not fit: {given} bytes at {offset} of "
                        f"{size}, its shape has {want}"
                    )
                at += 2

    def arrays(self, body: Array, places: tuple[int, ...], spares: Spares) -> list[Arrays]:
        """Returns the arrays of each microbatch; body and places belong together, and fit.

        Of a body that is read-only, small arrays are copies. What is widened lies in spares.
        """
        wide = spares.take(self.wide)
        small = 0 if body.flags.writeable else SMALL
        # An array over a memoryview is made for less than one over an array.
        given = Given(body.data, places, wide, small, self._runs)
        return [section.arrays(given) for section in self.sections]


def _microbatch(entries: bytes, at: int) -> int:
    """Returns the number of the microbatch that an entry is of; behind the last one, -1."""
    return int(ENTRY.unpack_from(entries, at)[3]) if at < len(entries) else -1


def _alike(section: Section, entries: bytes, at: int, wide: int, number: int) -> bool:
    """Says whether the entries of a microbatch, which begin at ``at``, are those of a section."""
    end = at + len(section.raw)
    begins = (section.first * ENTRY.size, section.begins) == (at, wide)
    return begins and entries[at:end] == section.raw and _microbatch(entries, end) != number


def _section(
    entries: bytes, at: int, wide: int, number: int, names: list[str], choice: Choice
) -> Section:
    """Reads the entries of a microbatch, which begin at ``at``."""
    section, end = Section(at // ENTRY.size, wide), at
    while _microbatch(entries, end) == number:
        entry = ENTRY.unpack_from(entries, end)
        if entry[0] >= len(names):
            raise BugError(f"tensor {end // ENTRY.size} of a table is {entry}")
        section.add(entry, names[entry[0]], choice)
        end += ENTRY.size
    section.raw = entries[at:end]
    return section


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
