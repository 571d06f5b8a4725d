"""What a declared function is: its kind and columns, and how it runs on a batch.

describe() reads signature and annotations when the decorator runs, so that what is wrong
with them is an error at the import. Function.run() maps one batch of columns and reports a
row's error as that row's. It knows nothing of memory and sockets, and of processes only that
what a function forks has to come out: the rows are its parent's.
"""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import inspect
import os
import re
import socket
import struct
import traceback
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Callable

import numpy as np
import numpy.typing as npt

from millrace._columns import Batch, Misfit, Reader, Type

KINDS = ("map", "filter", "flat_map", "map_batches")

# Token ids: what a tokens column holds in each row.
Tokens = npt.NDArray[np.int32]

MAX_TEXT = 2000  # characters of an error: a message may hold a whole document
MAX_FRAMES = 3  # of the user's traceback, the innermost
MAX_CAUSES = 16  # of an exception, which another one comes of in turn
# Set by the loader where it took the network away.
NO_NETWORK = "MILLRACE_NO_NETWORK"
NEEDS_NETWORK = (
    "; the step has no network: write network: true in it, "
    "if what comes out of a row is the same whenever it is asked for"
)
# Of an object: it differs from run to run, and a row fails for the same reason in each.
ADDRESS = re.compile(r"\b0x[0-9a-fA-F]{6,}")  # not "byte 0xff"
# Where files lie that are no user's: Python's own, ours, and what was installed.
PYTHON = (os.path.dirname(os.__file__) + os.sep, "<frozen ")
OURS = os.path.dirname(__file__) + os.sep
INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
RESOURCES = ("cpu", "gpu", "gpu_memory")

Place = tuple[
    int, str, int
]  # seed, source, number of the file: what rng is keyed by besides the row


class DeclarationError(TypeError):
    """What a decorated function declares cannot be run."""


class Lack(Exception):
    """A worker could not do its own part of a call for lack of something of its machine."""

    def __init__(self, error: OSError, what: str) -> None:
        self.errno = error.errno or errno.ENOMEM
        super().__init__(f"{what}: {error.strerror}")


# What a system says when there is no more of something: files, processes, memory, room on a disk.
LIMITS = tuple(
    getattr(errno, name)
    for name in ("EAGAIN", "EDQUOT", "EFBIG", "EMFILE", "ENFILE", "ENOMEM", "ENOSPC")
    if hasattr(errno, name)
)


def memory_is_bounded() -> bool:
    """Says whether a process here may be refused memory that it would get on another machine.

    Elsewhere only what is far more than there is is refused, as decoders ask for that are given
    a broken record.
    """
    try:
        import resource  # which Windows has not

        limits = (resource.RLIMIT_AS, resource.RLIMIT_DATA)
        if any(resource.getrlimit(one)[0] != resource.RLIM_INFINITY for one in limits):
            return True
        with open("/proc/sys/vm/overcommit_memory") as mode:
            return mode.read().strip() == "2"
    except (ImportError, OSError):
        return False


def lacking(error: BaseException) -> int:
    """The number of the system's error if its machine has no more of something; 0 otherwise.

    It is no row's fault: a record that is bad here has to be bad on every machine.
    """
    if isinstance(error, Lack):
        return error.errno
    if isinstance(error, MemoryError):
        return errno.ENOMEM if memory_is_bounded() else 0
    if isinstance(error, RuntimeError) and str(error) == "can't start new thread":
        return errno.EAGAIN
    number = isinstance(error, OSError) and error.errno
    return number if number and number in LIMITS else 0


@dataclasses.dataclass(frozen=True)
class Column:
    path: str
    type: Type
    default: Any = None  # in the place of null


@dataclasses.dataclass
class Result:
    """What became of a batch."""

    batch: Batch | None = None
    errors: list[tuple[int, str]] = dataclasses.field(default_factory=list)  # by row
    rows: int = 0  # that were worked on, if not all were
    raised: str = ""  # some row did it, and it is not known which
    broken: str = ""  # the function is wrong, whatever the rows are


@dataclasses.dataclass(frozen=True)
class Function:
    """A declared function."""

    target: Callable[..., Any]
    kind: str
    name: str
    inputs: list[Column]
    outputs: list[Column]
    rng: int  # the place of the parameter, or -1
    single: bool  # gives one value, not a row
    version: str
    needs: dict[str, float]
    input_types: list[Type]
    output_names: tuple[str, ...]

    def start(self) -> Callable[..., Any]:
        """What is called: the function, or a new object of the class."""
        made: Any = self.target() if inspect.isclass(self.target) else self.target
        if not callable(made):
            raise DeclarationError(f"{self.name}: its objects cannot be called: give it __call__")
        call: Callable[..., Any] = made
        return call

    def run(self, call: Callable[..., Any], batch: Reader, place: Place, most: int = 0) -> Result:
        """Maps a batch, or the first rows of it that give more than most bytes.

        An error that is no row's, of what lacking() says, is raised.
        """
        columns = batch.columns(self.kind == "map_batches")
        for i, column in enumerate(self.inputs):
            if column.default is not None:
                columns[i] = [column.default if v is None else v for v in columns[i]]
        if self.kind == "map_batches":
            return self._run_batch(call, columns, batch.rows)
        if self.rng >= 0:
            columns.insert(self.rng, Generators(self.name, place, batch.keys()))
        result = Result()
        rows, origins = self._run_rows(call, zip(*columns), result, most)
        result.batch = self._batch(rows, origins, result)
        return result

    def _run_rows(
        self, call: Callable[..., Any], given: Iterator[tuple[Any, ...]], result: Result, most: int
    ) -> tuple[list[tuple[Any, ...]], list[int]]:
        """The rows that come out, and which row each came from."""
        rows: list[tuple[Any, ...]] = []
        origins: list[int] = []
        left = most if self.outputs else 0
        process = os.getpid()  # one that the function forks does not answer for this one
        for i, row in enumerate(given):
            try:
                made = self._made(call(*row))
            except BaseException as error:
                if os.getpid() != process or lacking(error):
                    raise
                result.errors.append((i, said(error)))
                continue
            rows += made
            origins += [i] * len(made)
            if left > 0:
                left -= sum(map(weight, made))
                if left <= 0:
                    result.rows = i + 1
                    break
        return rows, origins

    def _made(self, out: Any) -> list[tuple[Any, ...]]:
        """The rows of what one call gave."""
        if self.kind == "map":
            return [self._row(out)]
        if self.kind == "filter":
            if not isinstance(out, (bool, np.bool_)):
                raise Misfit(f"a filter gives True or False, not {type(out).__name__}")
            return [()] if out else []
        if isinstance(out, (str, bytes, Mapping)) or not isinstance(out, Iterable):
            raise Misfit(f"a flat_map gives a list of rows, not {type(out).__name__}")
        return [self._row(row) for row in out]

    def _row(self, out: Any) -> tuple[Any, ...]:
        """The columns of a row, in order."""
        if self.single:
            return (out,)
        names = self.output_names
        if type(out) is not dict:  # which it nearly always is, and other questions take longer
            if dataclasses.is_dataclass(out) and not isinstance(out, type):
                return tuple(getattr(out, name) for name in names)
            if not isinstance(out, Mapping):
                raise Misfit(f"{type(out).__name__} was given, not the columns {', '.join(names)}")
        if len(out) != len(names) or not all(map(out.__contains__, names)):
            raise Misfit(f"columns {', '.join(map(str, out))} were given, not {', '.join(names)}")
        return tuple(map(out.__getitem__, names))

    def _batch(self, rows: list[tuple[Any, ...]], origins: list[int], result: Result) -> Batch:
        """Output columns, without the rows that do not fit, whose errors are noted."""
        try:
            return self._written(rows, origins, result)
        except Misfit:
            bad = {}
            for row, origin in zip(rows, origins):
                fault = self._misfit(row)
                if fault and origin not in bad:
                    bad[origin] = fault
            if not bad:  # each row fits, all together do not
                raise
        result.errors = sorted([*result.errors, *bad.items()])
        kept = [(row, origin) for row, origin in zip(rows, origins) if origin not in bad]
        return self._written([row for row, _ in kept], [origin for _, origin in kept], result)

    def _written(self, rows: list[tuple[Any, ...]], origins: list[int], result: Result) -> Batch:
        batch = Batch(len(rows))
        columns: Sequence[Any] = list(zip(*rows)) or [()] * len(self.outputs)
        for column, values in zip(self.outputs, columns):
            batch.add(list(values), column.type)
        if self.kind != "map" or result.errors:
            batch.origins = np.array(origins, np.int32)
        return batch

    def _misfit(self, row: tuple[Any, ...]) -> str:
        for column, value in zip(self.outputs, row):
            try:
                Batch(1).add([value], column.type)
            except Misfit as error:
                return f"what it gives as {column.path} is {error}"
        return ""

    def _run_batch(self, call: Callable[..., Any], columns: list[Any], rows: int) -> Result:
        result = Result(Batch(rows))
        assert result.batch is not None
        process = os.getpid()
        try:
            out = self._row(call(*columns))
            for column, values in zip(self.outputs, out):
                if not isinstance(values, (list, np.ndarray)):
                    raise Misfit(
                        f"column {column.path} is {type(values).__name__}, not a list or array"
                    )
                if len(values) != rows:
                    result.broken = f"column {column.path} has {len(values)} values for {rows} rows"
                    return result
                batch_add(result.batch, values, column)
        except BaseException as error:
            if os.getpid() != process or lacking(error):
                raise
            result.batch = Batch(0)
            result.raised = said(error)
            if rows == 1:
                result.raised = ""
                result.errors = [(0, said(error))]
                result.batch = self._batch([], [], result)
        return result


def weight(value: Any) -> int:
    """About how many bytes a row or a value of one takes in a batch."""
    found = type(value)
    if found is str or found is bytes:
        return len(value) + 4
    if found is tuple or found is list:
        return 4 + sum(map(weight, value))
    return getattr(value, "nbytes", 8)  # of an array, or a view of memory


def batch_add(batch: Batch, values: Any, column: Column) -> None:
    try:
        batch.add(values, column.type)
    except Misfit as error:
        raise Misfit(f"what it gives as {column.path} is {error}") from None


class Generators:
    """NumPy generators of rows: each a function of seed, source, file, row and part."""

    def __init__(self, name: str, place: Place, keys: list[tuple[int, int]]) -> None:
        seed, source, file = place
        self._base = hashlib.sha256(b"millrace rng 1\0" + struct.pack("<Q", seed % 2**64))
        for part in (name, source):
            self._base.update(struct.pack("<Q", len(part.encode())) + part.encode())
        self._file, self._keys = file, keys

    def __iter__(self) -> Iterator[np.random.Generator]:
        for row, part in self._keys:
            key = self._base.copy()
            key.update(struct.pack("<qqq", self._file, row, part))
            bits = np.random.Philox(key=int.from_bytes(key.digest()[:16], "little"))
            yield np.random.Generator(bits)


def said(error: BaseException) -> str:
    """An exception as one line: type, message, and the user's innermost frames."""
    if isinstance(error, (Misfit, Lack)):
        return clipped(str(error))
    frames = users(traceback.extract_tb(error.__traceback__))
    where = "; ".join(
        f"{f.filename.rsplit('/', 1)[-1]}:{f.lineno} in {f.name}: {f.line or ''}".rstrip(": ")
        for f in frames[-MAX_FRAMES:]
    )
    try:
        text = clipped(f"{type(error).__name__}: {error}".rstrip(": "))
    except Exception:  # its own __str__ raises
        text = type(error).__name__
    if where:
        text = f"{text} ({where})"
    return text + NEEDS_NETWORK if NO_NETWORK in os.environ and offline(error) else text


def offline(error: BaseException | None) -> bool:
    """Whether there is no network, by an exception or one that it comes of."""
    for _ in range(MAX_CAUSES):
        if isinstance(error, socket.gaierror):
            return True
        if isinstance(error, OSError) and error.errno == errno.ENETUNREACH:
            return True
        error = error and (error.__cause__ or error.__context__)
    return False


def users(frames: Iterable[traceback.FrameSummary]) -> list[traceback.FrameSummary]:
    """The frames of the user's files; of a function that was installed those of its own file."""
    installed, own = [], []
    for f in frames:
        if any(folder in f.filename for folder in INSTALLED):
            if not f.filename.startswith(OURS):
                installed.append(f)
        elif not f.filename.startswith((*PYTHON, OURS)):
            own.append(f)
    return own or [f for f in installed if f.filename == installed[0].filename]


def clipped(text: str) -> str:
    text = ADDRESS.sub("0x...", text.encode("utf-8", "replace").decode())
    return text if len(text) <= MAX_TEXT else text[:MAX_TEXT] + "..."


def bound(target: Any) -> Function:
    """The declaration of a decorated function."""
    function = getattr(target, "__millrace__", None)
    if not isinstance(function, Function):
        raise DeclarationError(
            f"{getattr(target, '__qualname__', target)} is not a step: decorate it with "
            "@millrace.transform(...)"
        )
    if function.target is not target:  # a wrapper copies the declaration, a subclass inherits it
        raise DeclarationError(
            f"{getattr(target, '__qualname__', target)} has the declaration of {function.name}, "
            "which would run in its place: decorate a subclass, too, and put @millrace.transform "
            "above the decorators that wrap a function"
        )
    return function


def describe(
    target: Any,
    kind: str,
    paths: dict[str, str],
    output: str | Mapping[str, Any] | None,
    version: str,
    needs: dict[str, float],
) -> Function:
    """Reads a declaration, or raises DeclarationError."""
    name = target.__qualname__
    if kind not in KINDS:
        raise DeclarationError(f"{name}: kind {kind!r} is none of {', '.join(KINDS)}")
    for resource, amount in needs.items():
        if resource not in RESOURCES or not amount >= 0:
            raise DeclarationError(
                f"{name}: needs {resource}: {amount}: give cpu, gpu or gpu_memory, 0 or more"
            )
    called = target.__call__ if inspect.isclass(target) else target
    try:
        hints = typing.get_type_hints(called)
    except Exception as error:
        raise DeclarationError(
            f"{name}: its annotations cannot be read ({type(error).__name__}: {error}): name types "
            "of the module's top level, and write Optional[X] for X | None before Python 3.10"
        ) from None
    inputs, rng = inputs_of(target, called, kind, paths, hints)
    outputs, single = outputs_of(name, kind, output, hints, inputs)
    types, names = [column.type for column in inputs], tuple(column.path for column in outputs)
    return Function(target, kind, name, inputs, outputs, rng, single, version, needs, types, names)


def inputs_of(
    target: Any, called: Any, kind: str, paths: dict[str, str], hints: dict[str, Any]
) -> tuple[list[Column], int]:
    """The columns that parameters name, and the place of rng."""
    name, inputs, rng = target.__qualname__, [], -1
    parameters = list(inspect.signature(called).parameters.values())
    for i, p in enumerate(parameters[1:] if inspect.isclass(target) else parameters):
        if p.kind is not p.POSITIONAL_OR_KEYWORD:
            raise DeclarationError(f"{name}: parameter {p.name} is not a plain one")
        if p.name == "rng":
            if kind == "map_batches":
                raise DeclarationError(
                    f"{name}: a map_batches takes no rng, as where batches end is not part of the "
                    "job: use map"
                )
            rng = i
            continue
        if p.name not in hints:
            raise DeclarationError(f"{name}: parameter {p.name} has no annotation: say its type")
        typed = (column_type if kind == "map_batches" else value_type)(hints[p.name], name, p.name)
        default = None if p.default is p.empty else p.default
        if p.default is not p.empty:
            typed = dataclasses.replace(typed, nullable=True)
        inputs.append(Column(paths.pop(p.name, p.name), typed, default))
    if paths:
        raise DeclarationError(f"{name}: input names {', '.join(paths)}, which is not a parameter")
    if not inputs:
        raise DeclarationError(f"{name}: it takes no column: name one by a parameter")
    return inputs, rng


def outputs_of(
    name: str, kind: str, output: Any, hints: dict[str, Any], inputs: list[Column]
) -> tuple[list[Column], bool]:
    """The columns given, and whether a call gives a value instead of a row of them."""
    if kind == "filter":
        if output is not None:
            raise DeclarationError(f"{name}: a filter gives no columns: leave output out")
        return [], False
    returned = hints.get("return")
    if kind == "flat_map" and not isinstance(output, Mapping):
        returned = (typing.get_args(returned) or (None,))[0]
    of = column_type if kind == "map_batches" else value_type
    fields = fields_of(returned, name)
    if isinstance(output, Mapping):
        fields, of = dict(output), value_type
    if fields is not None:
        columns = [Column(path, of(t, name, path)) for path, t in fields.items()]
        if not columns:
            raise DeclarationError(f"{name}: it gives no column")
        return columns, False
    if returned is None:
        raise DeclarationError(
            f"{name}: what it gives is not said: annotate what it returns, or declare "
            'output={"column": str}'
        )
    if output is None and len(inputs) != 1:
        raise DeclarationError(f'{name}: which column does it give? Declare output="name"')
    path = output or inputs[0].path
    return [Column(path, of(returned, name, path))], True


def fields_of(returned: Any, name: str) -> dict[str, Any] | None:
    """The columns of a TypedDict or dataclass; None if it is neither."""
    if not isinstance(returned, type):
        return None
    if dataclasses.is_dataclass(returned):
        hints = typing.get_type_hints(returned)
        return {f.name: hints[f.name] for f in dataclasses.fields(returned)}
    if issubclass(returned, dict) and hasattr(returned, "__total__"):
        if getattr(returned, "__optional_keys__", None):
            raise DeclarationError(f"{name}: a column is always there: declare it Optional instead")
        return typing.get_type_hints(returned)
    return None


SCALARS = {str: "string", bytes: "bytes", int: "int", float: "float", bool: "bool"}
ARRAYS = {np.int64: "int", np.float64: "float", np.bool_: "bool"}


def value_type(annotation: Any, name: str, column: str) -> Type:
    """The type of one value."""
    inner = optional(annotation)
    if inner is not None:
        return dataclasses.replace(value_type(inner, name, column), nullable=True)
    if annotation in SCALARS:
        return Type(SCALARS[annotation])
    if element_of(annotation) is np.int32:
        return Type("tokens")
    if typing.get_origin(annotation) is list:
        return Type("list", of=value_type(typing.get_args(annotation)[0], name, column))
    raise DeclarationError(
        f"{name}: {column} is {annotation!r}: give str, bytes, int, float, bool, a list of one of "
        "them, millrace.transform.Tokens, or Optional of one"
    )


def column_type(annotation: Any, name: str, column: str) -> Type:
    """The type of one value of a whole column."""
    element = element_of(annotation)
    if element in ARRAYS:
        return Type(ARRAYS[element])
    if typing.get_origin(annotation) is list:
        return value_type(typing.get_args(annotation)[0], name, column)
    raise DeclarationError(
        f"{name}: {column} is {annotation!r}: a column of map_batches is a list, as list[str], or "
        "an NDArray of int64, float64 or bool_"
    )


def optional(annotation: Any) -> Any:
    """X of Optional[X]; None if it is something else."""
    args = typing.get_args(annotation)
    if len(args) == 2 and type(None) in args and typing.get_origin(annotation) is not dict:
        return args[0] if args[1] is type(None) else args[1]
    return None


def element_of(annotation: Any) -> Any:
    """The scalar type of an NDArray."""
    origin, alias = typing.get_origin(annotation), npt.NDArray
    if origin is alias:  # from NumPy 2.5 on an alias with a name
        return typing.get_args(annotation)[0]
    if origin is not np.ndarray:
        return None
    dtype = typing.get_args(annotation)[1]
    return (typing.get_args(dtype) or (None,))[0]
