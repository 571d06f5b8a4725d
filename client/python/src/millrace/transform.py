"""Python functions as steps of a source: declared here, run by the service's workers.

    @millrace.transform("map")
    def clean(text: str) -> str:
        return text.strip()

Parameters name the columns that the function takes, the return annotation what it gives.
A function must depend on its row only: not on other rows, the time, the machine, or a
random generator other than ``rng``. millrace.transform.apply runs one on rows without a
service. docs/transforms-python.md has all of it. This module needs NumPy only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import Any, Callable, TypeVar, overload

import numpy as np

from millrace import _columns
from millrace._function import DeclarationError, Function, Tokens, bound, describe

__all__ = ["Tokens", "apply", "transform"]

F = TypeVar("F", bound=Callable[..., Any])


def _check(name: str, paths: Any, output: Any, version: Any, needs: Any) -> None:
    """Raises DeclarationError for words of a declaration that are of no use where they stand."""

    def texts(said: Any) -> bool:
        return all(isinstance(text, str) and text for text in said)

    def number(said: Any) -> bool:
        return isinstance(said, (int, float)) and not isinstance(said, bool) and abs(said) < inf

    mapped = paths is None or (isinstance(paths, Mapping) and texts([*paths, *paths.values()]))
    columns = output is None or texts(output if isinstance(output, Mapping) else [output])
    amounts = needs is None or (isinstance(needs, Mapping) and all(map(number, needs.values())))
    for word, said, fits, valid in [
        ("input", paths, mapped, 'paths of columns by parameter, such as {"title": "meta.title"}'),
        ("output", output, columns, 'a column, or types by column, such as {"words": int}'),
        ("version", version, isinstance(version, str), 'text, such as "2"'),
        ("needs", needs, amounts, 'numbers by resource, such as {"gpu": 0.5}'),
    ]:
        if not fits:
            raise DeclarationError(f"{name}: {word} is {said!r}: give {valid}")


class Transform:
    """The decorator; see the module."""

    Tokens = Tokens

    @overload
    def __call__(self, kind: F, /) -> F: ...

    @overload
    def __call__(
        self,
        kind: str = "map",
        *,
        input: Mapping[str, str] | None = None,
        output: str | Mapping[str, Any] | None = None,
        version: str = "",
        needs: Mapping[str, float] | None = None,
    ) -> Callable[[F], F]: ...

    def __call__(
        self,
        kind: str | Callable[..., Any] = "map",
        *,
        input: Mapping[str, str] | None = None,
        output: str | Mapping[str, Any] | None = None,
        version: str = "",
        needs: Mapping[str, float] | None = None,
    ) -> Any:
        """Declares a function, or a class whose objects are called, a step.

        kind: map (row to row), filter (row to bool), flat_map (row to rows) or
            map_batches (columns to columns of as many rows).
        input: paths of columns for parameters that are not named like them,
            ``{"title": "meta.title", "parts": "messages[].content"}``.
        output: the columns given, by name and type, or the name of the only one. Without
            it a TypedDict or dataclass that is returned says so; and what is returned as
            a single value replaces the only parameter's column.
        version: part of the function's identity besides its module's file. Change it when
            something else that decides results changes: a model's file, another module.
        needs: resources a worker takes, as ``{"gpu": 0.5, "gpu_memory": 8 << 30}`` (a share of
            a GPU, and bytes of it); one CPU and no GPU unless said.
        """
        if callable(kind):
            return self()(kind)

        def decorate(target: F) -> F:
            if not hasattr(target, "__qualname__"):
                raise DeclarationError(
                    f"a {type(target).__qualname__} object is neither a function nor a class: "
                    "write a function that calls it, whose annotations say what it takes and gives"
                )
            _check(target.__qualname__, input, output, version, needs)
            described = describe(
                target, kind, dict(input or {}), output, version, dict(needs or {})
            )
            target.__millrace__ = described  # type: ignore[attr-defined]
            return target

        return decorate

    @staticmethod
    def apply(
        fn: Callable[..., Any],
        rows: Iterable[Mapping[str, Any]],
        *,
        seed: int = 0,
        source: str = "",
        file: int = 0,
    ) -> list[dict[str, Any]]:
        """Returns what fn makes of rows, with all the checks that a worker makes.

        A row is a dictionary by column. A filter gives the rows that it keeps; what a map
        gives takes the place of columns of the same name. For rng row k has the number k, in
        the file of this number. Of rows a str may be given as bytes of UTF-8, and bytes as a
        str, as a loader takes them.
        """
        function = bound(fn)
        given = [dict(row) for row in rows]
        batch = batch_of(function, given)
        memory = bytearray(batch.size())
        batch.write(memoryview(memory))
        reader = _columns.Reader(memoryview(memory).toreadonly(), function.input_types)
        state = function.start()
        result = function.run(state, reader, (seed, source, file))
        if result.broken or result.raised:
            raise ValueError(result.broken or result.raised)
        if result.errors:
            raise ValueError("row {}: {}".format(*result.errors[0]))
        out = joined(function, given, result.batch)
        result.batch = None
        if reader.kept():
            raise ValueError(
                "it keeps a column after its call, whose memory is used again: copy it"
            )
        return out


def batch_of(function: Function, rows: Sequence[Mapping[str, Any]]) -> _columns.Batch:
    """The columns that a function takes, of rows."""
    batch = _columns.Batch(len(rows))
    for column in function.inputs:
        try:
            batch.add([taken(row.get(column.path), column.type) for row in rows], column.type)
        except _columns.Misfit as error:
            raise ValueError(f"column {column.path}: a value is {error}") from None
    keys = [number for row in range(len(rows)) for number in (row, 0)]
    batch.keys = np.array(keys, _columns.WORD)
    return batch


def taken(value: Any, kind: _columns.Type) -> Any:
    """A value of a record as the loader gives it to a function."""
    if kind.of and isinstance(value, (list, tuple)):
        return [taken(element, kind.of) for element in value]
    try:
        if kind.name == "string" and isinstance(value, (bytes, bytearray, memoryview)):
            return bytes(value).decode()
        if kind.name == "bytes" and isinstance(value, str):
            return value.encode()
    except UnicodeDecodeError:
        raise _columns.Misfit(f"bytes that are not UTF-8, not {kind}") from None
    except UnicodeEncodeError as error:
        raise _columns.Misfit(f"text that UTF-8 cannot hold ({error.reason})") from None
    return value


def joined(
    function: Function, given: list[dict[str, Any]], batch: _columns.Batch | None
) -> list[dict[str, Any]]:
    """Rows with what came out in the place of columns of the same name."""
    assert batch is not None
    memory = bytearray(batch.size())
    batch.write(memoryview(memory))
    reader = _columns.Reader(memoryview(memory).toreadonly(), [c.type for c in function.outputs])
    columns = reader.columns(False)
    origins = reader.origins()
    out = []
    for i in range(batch.rows):
        row = dict(given[i if origins is None else origins[i]])
        row.update({c.path: values[i] for c, values in zip(function.outputs, columns)})
        out.append(row)
    return out


transform = Transform()
apply = transform.apply
