"""``python -m millrace.digest DIR...``: what all ranks received, as one digest per step.

It rebuilds the global batches from the dumps of all ranks (millrace.rank --dump)
and chains their digests as the service does, from its own reading of the
definition: a second opinion, in another language, on what trainers were given.

    row    SHA-256(segments u32, length of each u32, all tokens i32; for each kept
           value: document u32, length of the column's name u32, name, length u64, value;
           for each image: document, place of its first placeholder in the document,
           patches down and across, u32 each, SHA-256 of the encoded image; for each
           document with tokens without loss: 2^32-1, document, number of their bounds,
           bounds of their runs, u32 each)
    step   SHA-256("millrace step", step u64, rows u64, digests of the rows)
    chain  SHA-256(chain before, step); the start is in the first resume token

All numbers are little-endian; rows are in global order; padding does not count.
"""

from __future__ import annotations

import argparse
import hashlib
import struct
import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from millrace import dump
from millrace.errors import UserError
from millrace.receive import Array, Extra


def row_digest(
    segments: Sequence[Array],
    kept: Sequence[tuple[int, str, bytes]] = (),
    images: Sequence[dump.Image] = (),
    masked: Sequence[Sequence[int]] = (),
) -> bytes:
    """Returns the digest of a row: the tokens of its documents, kept columns, and images.

    kept holds document, column and value, sorted; images are in the order of placeholders;
    masked holds the bounds of runs of tokens without loss, for each document.
    """
    head = struct.pack(f"<{1 + len(segments)}I", len(segments), *map(len, segments))
    tokens = b"".join(np.asarray(segment).astype("<i4").tobytes() for segment in segments)
    made = hashlib.sha256(head + tokens)
    for document, column, value in kept:
        name = column.encode()
        made.update(struct.pack("<II", document, len(name)) + name)
        made.update(struct.pack("<Q", len(value)) + value)
    for image in images:
        made.update(struct.pack("<4I", *image[1:5]) + image.sha256)
    for document, bounds in enumerate(masked):
        if bounds:
            head = struct.pack("<3I", 2**32 - 1, document, len(bounds))
            made.update(head + struct.pack(f"<{len(bounds)}I", *bounds))
    return made.digest()


def kept_values(rows: int, extras: dict[str, list[Extra]]) -> list[list[tuple[int, str, bytes]]]:
    """Returns document, column and value of what was kept, for each row of a microbatch."""
    kept: list[list[tuple[int, str, bytes]]] = [[] for _ in range(rows)]
    for column, values in extras.items():
        for extra in values:
            kept[extra.row].append((extra.document, column, extra.data.tobytes()))
    return [sorted(row, key=lambda value: value[:2]) for row in kept]


def step_digest(step: int, rows: Sequence[bytes]) -> bytes:
    """Returns the digest of a step from those of its rows in global order."""
    head = b"millrace step" + struct.pack("<QQ", step, len(rows))
    return hashlib.sha256(head + b"".join(rows)).digest()


def chain(before: bytes, step: bytes) -> bytes:
    """Returns the digest of a run up to and with a step."""
    return hashlib.sha256(before + step).digest()


def join_slices(parts: Sequence[Array], slicing: str) -> Array:
    """Returns the whole lines of which context-parallel rank r received parts[r]."""
    if len(parts) == 1:
        return parts[0]
    if slicing == "none":
        for part in parts:
            _same(parts[0], part)
        return parts[0]
    if slicing == "contiguous":
        return np.concatenate(parts, axis=1)
    halves = [np.split(part, 2, axis=1) for part in parts]
    return np.concatenate([h[0] for h in halves] + [h[1] for h in reversed(halves)], axis=1)


def _same(one: Array, other: Array) -> None:
    if not np.array_equal(one, other):
        raise UserError("ranks that get equal tokens got different ones")


def cut(lines: Array, lengths: Sequence[Sequence[int]], flat: bool) -> list[list[Array]]:
    """Returns the documents of each row; flat: all rows lie in one line (format hf)."""
    rows, at = [], 0
    for number, row in enumerate(lengths):
        line = lines[0] if flat else lines[number]
        at = at if flat else 0
        documents = []
        for length in row:
            documents.append(line[at : at + length])
            at += length
        if at > len(line):
            raise UserError(
                f"row {number} of a microbatch has {at} tokens in a line of {len(line)}"
            )
        rows.append(documents)
    return rows


def cut_segments(
    parts: Sequence[Array], bounds: Array, lengths: Sequence[Sequence[int]], slicing: str
) -> list[list[Array]]:
    """Returns the documents of each row of format megatron-thd.

    Context-parallel rank r received parts[r]; each segment between two bounds was cut by
    itself. A segment is a document with its padding, or what is left of a row.
    """
    cuts = 1 if slicing == "none" else len(parts)
    segments = [
        join_slices([part[None, start // cuts : end // cuts] for part in parts], slicing)[0]
        for start, end in zip(bounds.tolist(), bounds[1:].tolist())
    ]
    rows, left = [], iter(segments)
    for number, row in enumerate(lengths):
        documents, room = [], int(bounds[-1]) // len(lengths)
        for length in row:
            segment = next(left, np.empty(0))
            documents.append(segment[:length])
            room -= len(segment)
            if len(segment) < length or room < 0:
                raise UserError(f"row {number} of a microbatch does not agree with its bounds")
        if room:
            next(left, None)
        rows.append(documents)
    return rows


def documents_of(
    format: str,
    slicing: str,
    slices: Sequence[Array],
    bounds: Array | None,
    lengths: Sequence[Sequence[int]],
) -> list[list[Array]]:
    """Returns what each document has of a tensor of which rank r received slices[r]."""
    if format == "megatron-thd" and bounds is not None:
        return cut_segments(slices, bounds, lengths, slicing)
    if format == "torchtitan":
        slices = [part.reshape(len(lengths), -1) for part in slices]
    return cut(join_slices(slices, slicing), lengths, flat=format == "hf")


def bounds_of(format: str, values: Array, images: Sequence[dump.Image], document: int) -> list[int]:
    """Returns the bounds of a document's runs of tokens without loss.

    values is what the document has of the tensor that tells, images are the row's.
    """
    taught = values != (-100 if format in ("hf", "torchtitan") else 0)
    if format != "hf":  # the value is at the place before
        taught = np.roll(taught, 1)
    taught[:1] = True  # nothing predicts the first token
    for image in images:
        if image.document == document:
            taught[image.at : image.at + image.tokens] = True
    edges = np.flatnonzero(np.diff(taught, append=True)) + 1
    return [int(edge) for edge in edges]


class Part(NamedTuple):
    """One microbatch: row numbers, and each row's documents, kept values, images and masks."""

    rows: list[int]
    documents: list[list[Array]]
    kept: list[list[tuple[int, str, bytes]]]
    images: list[list[dump.Image]]
    masked: list[list[list[int]]]


class Reader:
    """The global batches in the dumps of all ranks of a run."""

    def __init__(self, dumps: Sequence[dump.Dump], slicing: str) -> None:
        # The first pipeline stage has all that a row consists of; others may have its tokens.
        self._dumps = sorted(dumps, key=lambda source: source.coordinate("pp"))
        self._slicing = slicing
        self._mesh = dumps[0].place["mesh"]
        for other in dumps[1:]:
            for key in ("mesh", "identity", "format", "step", "digest"):
                if other.place[key] != dumps[0].place[key]:
                    raise UserError(
                        f"{key} is {dumps[0].place[key]} in {dumps[0].folder}, "
                        f"but {other.place[key]} in {other.folder}: give the dumps of one run"
                    )

    def digests(self) -> Iterator[tuple[int, bytes]]:
        """Yields numbers of steps done and the chain of them, as far as all ranks have them."""
        place = self._dumps[0].place
        if place["microbatch"]:
            raise UserError(f"the dumps start in the middle of step {place['step']}")
        step, before = place["step"], bytes.fromhex(place["digest"])
        there = dict(set.intersection(*(source.steps() for source in self._dumps)))
        while step in there:
            before = chain(before, step_digest(step, self._rows(step, there[step])))
            step += 1
            yield step, before

    def _rows(self, step: int, count: int) -> list[bytes]:
        """Returns the digests of a step's rows in global order."""
        found: dict[int, bytes] = {}
        for numbers, *content in self._microbatches(step, count):
            found.update(zip(numbers, [row_digest(*row) for row in zip(*content)]))
        missing = set(range(len(found))) - set(found)
        if missing or not found:
            raise UserError(f"step {step} lacks row {min(missing, default=0)}: give all dumps")
        return [found[row] for row in range(len(found))]

    def _microbatches(self, step: int, count: int) -> Iterator[Part]:
        """Yields the ``count`` parts of a step that each group of ranks received.

        A group are the cp ranks of a dp index or, with context_split, those that share a
        row: neighbours in the pool of all dp x cp ranks, which are numbered dp by dp.
        """
        parts: dict[int, dict[int, dump.Rows]] = {}
        cps = self._mesh["cp"]
        for source in self._dumps:
            rank = source.coordinate("dp") * cps + source.coordinate("cp")
            for number, rows in source.microbatches(step):
                self._collect(parts.setdefault(number, {}), rank, rows)
        for number in range(count):
            there = parts.get(number, {})
            at = 0
            while at < self._mesh["dp"] * cps:
                group = range(at, at + ((there[at].ranks or cps) if at in there else cps))
                if missing := [
                    f"dp={r // cps} cp={r % cps}"
                    for r in group
                    if r not in there or there[r].tokens is None
                ]:
                    raise UserError(
                        f"step {step}, microbatch {number}: the tokens of {', '.join(missing)} "
                        "are not there: give all ranks' dumps"
                    )
                yield self._join([there[rank] for rank in group])
                at = group.stop

    def _join(self, slices: list[dump.Rows]) -> Part:
        """Puts together the rows of which each rank of a group has a slice."""
        first = slices[0]
        if any(other.ranks != first.ranks for other in slices):
            raise UserError("ranks that share a row do not agree how many they are")
        format = self._dumps[0].place["format"]
        documents = documents_of(
            format,
            self._slicing,
            [part.tokens for part in slices if part.tokens is not None],
            first.bounds,
            first.lengths,
        )
        kept = kept_values(len(first.rows), first.extras)
        images = [[i for i in first.images if i.row == row] for row in range(len(first.rows))]
        losses = [part.loss for part in slices if part.loss is not None]
        if len(losses) < len(slices):  # only dumps of first stages: no mask can be read
            return Part(first.rows, documents, kept, images, [[] for _ in first.rows])
        values = documents_of(format, self._slicing, losses, first.bounds, first.lengths)
        masked = [
            [bounds_of(format, value, images[row], k) for k, value in enumerate(documents)]
            for row, documents in enumerate(values)
        ]
        return Part(first.rows, documents, kept, images, masked)

    def _collect(self, parts: dict[int, dump.Rows], rank: int, rows: dump.Rows) -> None:
        """Keeps one copy of what TP ranks and pipeline stages got, which must be equal."""
        if rows.tokens is None and rows.loss is None:
            return
        kept = parts.setdefault(rank, rows)
        if kept.tokens is not None and rows.tokens is not None:
            _same(kept.tokens, rows.tokens)
        if kept.loss is None:
            kept = parts[rank] = kept._replace(loss=rows.loss)
        elif rows.loss is not None:
            _same(kept.loss, rows.loss)
        if rows.tokens is None:
            return
        if (kept.rows, kept.lengths) != (rows.rows, rows.lengths):
            raise UserError("ranks that get equal rows got different ones")
        if rows.images and kept.images != rows.images:
            raise UserError("ranks that get equal images got different ones")


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints ``digest step=N HEX`` after each step: the chain of the first N steps."""
    parser = argparse.ArgumentParser(prog="python -m millrace.digest", description=main.__doc__)
    parser.add_argument("folders", nargs="+", metavar="DIR", help="folders of millrace.rank --dump")
    parser.add_argument(
        "--cp-slicing",
        choices=("zigzag", "contiguous", "none"),
        default="zigzag",
        help="the job's output.cp_slicing (default zigzag)",
    )
    options = parser.parse_args(arguments)
    try:
        for step, digest in Reader(dump.read(options.folders), options.cp_slicing).digests():
            print(f"digest step={step} {digest.hex()}")
    except UserError as error:
        print(f"millrace.digest: {error}", file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
