"""Where the rows of a batch came from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from millrace.errors import BugError
from millrace.messages import RowInfo
from millrace.table import LINE, ORIGIN
from millrace.wire import WireError


@dataclass(frozen=True)
class Segment:
    """One document of a row: its tokens, its source, and its place there."""

    length: int
    source: str
    seq: int  # block of the source's order, counted over epochs
    index: int  # place in the block


@dataclass(frozen=True)
class Row:
    """A row by its number in the global batch; padding is what the segments leave."""

    row: int
    segments: list[Segment]


class Lines(NamedTuple):
    """The rows of a microbatch, in the parts of a table that have those of all."""

    lines: bytes
    origins: bytes
    microbatch: int

    def read(self, sources: Sequence[str]) -> list[Row]:
        """Returns the rows. Raises BugError, or IndexError for a source that is none."""
        rows, at = [], 0
        for number, microbatch, documents, _ in LINE.iter_unpack(self.lines):
            end = at + documents * ORIGIN.size
            if end > len(self.origins):
                raise BugError("the lineage of a batch is cut off")
            if microbatch == self.microbatch:
                found = ORIGIN.iter_unpack(self.origins[at:end])
                segments = [Segment(n, sources[of], seq, index) for seq, n, of, index, _ in found]
                rows.append(Row(number, segments))
            at = end
        return rows


def read(rows: Lines | Sequence[bytes], sources: Sequence[str]) -> list[Row]:
    """Returns the rows described by a table, or by serialized RowInfos."""
    try:
        if isinstance(rows, Lines):
            return rows.read(sources)
        return [_row(RowInfo.decode(raw), sources) for raw in rows]
    except (WireError, IndexError) as error:
        raise BugError(f"reading the lineage of a batch: {error}") from error


def _row(info: RowInfo, sources: Sequence[str]) -> Row:
    columns = (info.lengths, info.sources, info.seqs, info.indices)
    if len({len(column) for column in columns}) != 1:
        raise BugError(f"the lineage of row {info.row} has columns of different lengths")
    return Row(
        info.row,
        [Segment(length, sources[at], seq, index) for length, at, seq, index in zip(*columns)],
    )
