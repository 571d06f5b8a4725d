"""Where the rows of a batch came from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from millrace.errors import BugError
from millrace.messages import RowInfo
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


def read(rows: Sequence[bytes], sources: Sequence[str]) -> list[Row]:
    """Returns the rows described by serialized RowInfos."""
    try:
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
