"""Columns of rows in shared memory, in Arrow's layout (docs/bytes.md, "Worker processes").

A batch is a table of int64 at the front and buffers behind it, each at a multiple of 64:
validity bitmaps, int32 offsets, values. read() gives Python values or NumPy views,
write() takes them, and checks that they are what was declared. Nothing here knows of
sockets, processes or functions.
"""

from __future__ import annotations

import gc
import struct
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

MAGIC = 0x3142524D  # "MRB1"
HEAD = 8  # words before the nodes: magic, rows, nodes, origins, keys, bytes, 0, 0
NODE = 6  # words of a node: length, nulls, validity, offsets, values, bytes
ALIGN = 64
MAX_BYTES = 1 << 30  # of a batch: offsets are 32 bits

Values = Any  # of a column: a list, or an array of one dtype
Memory = Any  # whatever gives a writable or read-only buffer


class Misfit(Exception):
    """A value that is not what its column declares."""


@dataclass(frozen=True)
class Type:
    """What the values of a column are: the type of one value, and whether it may be None."""

    name: str  # string, bytes, int, float, bool, tokens, list
    nullable: bool = False
    of: Type | None = None  # of a list's elements

    def __str__(self) -> str:
        name = f"list<{self.of}>" if self.of else self.name
        return name + "?" if self.nullable else name

    def nodes(self) -> int:
        """The number of nodes that a column of this type has in the table."""
        return 1 + (self.of.nodes() if self.of else 0)


DTYPES: dict[str, Any] = {
    "int": np.dtype("<i8"),
    "float": np.dtype("<f8"),
    "tokens": np.dtype("<i4"),
}
OFFSET = np.dtype("<i4")
BYTE = np.dtype("u1")
LONG = 4096  # bytes of a value, on average, above which copying costs more than a step of Python
WORD = np.dtype("<i8")


class Reader:
    """Reads the columns of a batch from memory. Arrays are read-only views of it."""

    def __init__(self, memory: Memory, columns: Iterable[Type]) -> None:
        self.memory = memory
        self._whole = np.frombuffer(memory, np.uint8)  # what all arrays are views of
        magic, self.rows, nodes, self._origins, self._keys, _, _, _ = self._words(HEAD, 0)
        if magic != MAGIC:
            raise ValueError(f"the batch begins with {magic:#x}, not {MAGIC:#x}")
        self._nodes = self._words(nodes * NODE, HEAD * 8)
        self._at = 0
        self._types = list(columns)

    def kept(self) -> bool:
        """Whether somebody has an array yet. The memory is about to be used again."""
        if sys.getrefcount(self._whole) > 2:
            gc.collect()  # those in a cycle are nobody's
        return sys.getrefcount(self._whole) > 2

    def _words(self, count: int, at: int) -> tuple[int, ...]:
        if count < 0 or at + 8 * count > self._whole.size:
            raise ValueError(f"a table of {8 * count} bytes at {at} of {self._whole.size}")
        return struct.unpack_from(f"<{count}q", self.memory, at)

    def _array(self, dtype: Any, count: int, at: int) -> np.ndarray[Any, Any]:
        size = count * dtype.itemsize
        if at < 0 or at + size > self._whole.size:
            raise ValueError(f"{size} bytes at {at} of {self._whole.size}")
        return self._whole[at : at + size].view(dtype)

    def columns(self, arrays: bool) -> list[Values]:
        """All columns. arrays: int, float and bool columns without nulls as arrays."""
        self._at = 0
        return [self._read(kind, arrays) for kind in self._types]

    def keys(self) -> list[tuple[int, int]]:
        """Row and part of each row."""
        flat = self._array(WORD, 2 * self.rows, self._keys).tolist()
        return list(zip(flat[::2], flat[1::2]))

    def origins(self) -> list[int] | None:
        """The input row of each row; None if they are the input's."""
        if not self._origins:
            return None
        return list(self._array(OFFSET, self.rows, self._origins).tolist())

    def _read(self, kind: Type, arrays: bool) -> Values:
        node = self._nodes[self._at : self._at + NODE]
        self._at += NODE
        length, nulls = node[0], node[1]
        if kind.name in ("int", "float"):
            array = self._array(DTYPES[kind.name], length, node[4])
            values: Values = array if arrays and not kind.nullable else array.tolist()
        elif kind.name == "bool":
            bits = self._bits(node[4], length)
            values = bits if arrays and not kind.nullable else bits.tolist()
        else:
            values = self._parts(kind, node)
        if not nulls:
            return values
        valid = self._bits(node[2], length).tolist()
        return [v if ok else None for v, ok in zip(values, valid)]

    def _parts(self, kind: Type, node: tuple[int, ...]) -> list[Any]:
        """Values of many elements: texts, bytes, token ids, lists."""
        offsets = self._array(OFFSET, node[0] + 1, node[3]).tolist()
        if kind.of:
            elements = self._read(kind.of, False)
            return [elements[a:b] for a, b in zip(offsets, offsets[1:])]
        if kind.name == "tokens":
            ids = self._array(DTYPES["tokens"], node[5] // 4, node[4])
            return [ids[a:b] for a, b in zip(offsets, offsets[1:])]
        data: Any = self.memory[node[4] : node[4] + node[5]]
        if node[5] >= LONG * node[0]:  # one copy of each value, and none of all
            if kind.name == "bytes":
                return [bytes(data[a:b]) for a, b in zip(offsets, offsets[1:])]
            return [str(data[a:b], "utf-8") for a, b in zip(offsets, offsets[1:])]
        data = bytes(data)
        if kind.name == "bytes":
            return [data[a:b] for a, b in zip(offsets, offsets[1:])]
        text = data.decode()
        if len(text) == len(data):  # ASCII: a character is a byte
            return [text[a:b] for a, b in zip(offsets, offsets[1:])]
        return [data[a:b].decode() for a, b in zip(offsets, offsets[1:])]

    def _bits(self, at: int, length: int) -> np.ndarray[Any, Any]:
        packed = self._array(BYTE, (length + 7) // 8, at)
        return np.unpackbits(packed, count=length, bitorder="little").view(np.bool_)


class Batch:
    """Columns that are written: first made into buffers, then laid out in memory."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.nodes: list[list[Any]] = []  # length, nulls, then validity, offsets, values
        self.origins: Any = None
        self.keys: Any = None

    def add(self, values: Values, kind: Type) -> None:
        """Adds a column, or raises Misfit."""
        validity: Any = None
        if kind.nullable and not isinstance(values, np.ndarray):
            values, validity = without_nulls(values, kind)
        nulls = 0 if validity is None else len(values) - int(np.count_nonzero(validity))
        bits = None if nulls == 0 else np.packbits(validity, bitorder="little")
        node: list[Any] = [len(values), nulls, bits, None, None]
        self.nodes.append(node)
        if kind.name in TAKES:
            array = numbers(values, kind)
            node[4] = np.packbits(array, bitorder="little") if kind.name == "bool" else array
            return
        sizes, node[4], elements = parts(values, kind)
        ends = np.cumsum(np.fromiter(sizes, WORD, len(sizes)))
        if len(ends) and ends[-1] > MAX_BYTES:
            raise Misfit(f"the column has {ends[-1]} bytes or elements, at most {MAX_BYTES} fit")
        offsets = np.zeros(len(ends) + 1, OFFSET)
        offsets[1:] = ends
        node[3] = offsets
        if kind.of:
            try:
                self.add(elements, kind.of)
            except Misfit as error:
                raise Misfit(f"an element is {error}") from None

    def size(self) -> int:
        """The bytes that write() takes."""
        at = aligned((HEAD + NODE * len(self.nodes)) * 8)
        at += aligned(nbytes(self.origins)) + aligned(nbytes(self.keys))
        for _, _, validity, offsets, values in self.nodes:
            at += aligned(nbytes(validity)) + aligned(nbytes(offsets)) + aligned(nbytes(values))
        return at

    def write(self, memory: Memory) -> None:
        """Lays the batch out in memory of at least size() bytes."""
        self._memory = memory
        self._at = aligned((HEAD + NODE * len(self.nodes)) * 8)
        table = [MAGIC, self.rows, len(self.nodes), self._put(self.origins), self._put(self.keys)]
        rest: list[int] = []
        for length, nulls, validity, offsets, values in self.nodes:
            places = [self._put(validity), self._put(offsets), self._put(values)]
            rest += [length, nulls, *places, nbytes(values)]
        table += [self._at, 0, 0, *rest]
        struct.pack_into(f"<{len(table)}q", memory, 0, *table)
        del self._memory

    def _put(self, buffer: Any) -> int:
        if buffer is None:
            return 0
        at, size = self._at, nbytes(buffer)
        self._at += aligned(size)
        if isinstance(buffer, list):
            start = at
            for piece in buffer:
                self._memory[start : start + len(piece)] = piece
                start += len(piece)
        elif size:
            self._memory[at : at + size] = buffer if isinstance(buffer, bytes) else flat(buffer)
        return at


def aligned(size: int) -> int:
    return (size + ALIGN - 1) & -ALIGN


def nbytes(buffer: Any) -> int:
    """The bytes of a buffer: an array, bytes, a list of bytes, or None."""
    if buffer is None:
        return 0
    if isinstance(buffer, np.ndarray):
        return buffer.nbytes
    return sum(map(len, buffer)) if isinstance(buffer, list) else len(buffer)


def flat(array: np.ndarray[Any, Any]) -> memoryview:
    whole: Any = np.ascontiguousarray(array)
    return memoryview(whole).cast("B")


# What stands in for a null, which a reader never looks at.
BLANKS: dict[str, Any] = {"string": "", "bytes": b"", "int": 0, "float": 0.0, "bool": False}


def without_nulls(values: Sequence[Any], kind: Type) -> tuple[list[Any], Any]:
    """The values with blanks for None, and which are not None."""
    valid = np.fromiter((v is not None for v in values), np.bool_, len(values))
    if valid.all():
        return list(values), valid
    blank = BLANKS.get(kind.name, ())
    return [blank if v is None else v for v in values], valid


# The types of Python and NumPy that a column of numbers takes.
TAKES: dict[str, tuple[type, ...]] = {
    "int": (int, np.integer),
    "float": (float, int, np.floating, np.integer),
    "bool": (bool, np.bool_),
}
DTYPE_KINDS = {"int": "iu", "float": "fiu", "bool": "b"}


def numbers(values: Values, kind: Type) -> np.ndarray[Any, Any]:
    """An array of a column of numbers or bools."""
    if isinstance(values, np.ndarray):
        if values.dtype is DTYPES.get(kind.name) and values.ndim == 1:
            return values
        if values.dtype.kind not in DTYPE_KINDS[kind.name] or values.ndim != 1:
            raise Misfit(f"an array of {values.dtype} and {values.ndim} axes, not {kind}")
        if kind.name == "int" and values.dtype == np.uint64 and (values >> 63).any():
            raise Misfit("an integer beyond 64 bits with sign")
        cast: np.ndarray[Any, Any] = values.astype(DTYPES.get(kind.name, np.bool_), copy=False)
        return cast
    for found in set(map(type, values)):
        if not issubclass(found, TAKES[kind.name]) or (found is bool and kind.name != "bool"):
            raise Misfit(named(found, kind))
    try:
        return np.array(values, DTYPES.get(kind.name, np.bool_))
    except OverflowError:
        raise Misfit("an integer beyond 64 bits with sign") from None


def named(found: type, kind: Type) -> str:
    if found is type(None):
        return f"None, not {kind}: declare Optional if it may be"
    return f"{found.__name__}, not {kind}"


def parts(values: Values, kind: Type) -> tuple[list[int], Any, Any]:
    """Sizes of values of many elements, their buffer, and the elements of lists."""
    if isinstance(values, np.ndarray):
        if values.ndim != 1 or values.dtype.kind not in "OUS":
            raise Misfit(f"an array of {values.dtype} and {values.ndim} axes, not {kind}")
        values = values.tolist()
    if kind.name == "string":
        return texts(values, kind)
    if kind.name == "bytes":
        only(values, kind, (bytes, bytearray, memoryview))
        return [memoryview(v).nbytes for v in values], b"".join(values), None
    if kind.name == "tokens":
        arrays = [ids(v, kind) for v in values]
        joined = np.concatenate(arrays) if arrays else np.empty(0, DTYPES["tokens"])
        return [len(a) for a in arrays], joined, None
    only(values, kind, (list, tuple, np.ndarray))
    elements = [v.tolist() if isinstance(v, np.ndarray) else v for v in values]
    return [len(v) for v in elements], None, list(chain.from_iterable(elements))


def texts(values: list[Any], kind: Type) -> tuple[list[int], bytes | list[bytes], None]:
    only(values, kind, (str,))
    sizes = list(map(len, values))
    long = sum(sizes) >= LONG * len(sizes)
    try:
        if not long and (joined := "".join(values)).isascii():
            return sizes, joined.encode(), None
        encoded = [v.encode() for v in values]
    except UnicodeEncodeError as error:
        raise Misfit(f"text that UTF-8 cannot hold ({error.reason})") from None
    return list(map(len, encoded)), encoded if long else b"".join(encoded), None


def only(values: list[Any], kind: Type, wanted: tuple[type, ...]) -> None:
    for found in set(map(type, values)):
        if not issubclass(found, wanted):
            raise Misfit(named(found, kind))


def ids(value: Any, kind: Type) -> np.ndarray[Any, Any]:
    """Token ids of one row, as 32 bits."""
    if not isinstance(value, (np.ndarray, list, tuple)):
        raise Misfit(named(type(value), kind))
    array = np.asarray(value) if len(value) else np.empty(0, DTYPES["tokens"])
    if array.dtype.kind not in "iu" or array.ndim != 1:
        raise Misfit(f"an array of {array.dtype} and {array.ndim} axes, not {kind}")
    if array.size and (int(array.min()) < -(2**31) or int(array.max()) >= 2**31):
        raise Misfit("a token id beyond 32 bits")
    narrow: np.ndarray[Any, Any] = array.astype(DTYPES["tokens"], copy=False)
    return narrow
