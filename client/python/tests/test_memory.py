"""Memory that is used again when nothing lies in it any more."""

from __future__ import annotations

import gc

import numpy as np
from test_table import body, golden

from millrace.memory import SPARES, Spares, aligned
from millrace.table import Tables


def test_a_buffer_is_taken_again_when_its_last_view_is_gone():
    spares = Spares()
    whole = spares.take(4096)
    at = whole.ctypes.data
    assert at % 64 == 0 and whole.size == 4096 and whole.flags.writeable
    rows = np.ndarray((8, 8), "<i8", whole, 64)
    column = rows[1:].T[0]
    last = memoryview(column)
    del whole, rows, column
    gc.collect()
    assert spares.take(4096).ctypes.data != at
    del last
    assert spares.take(4096).ctypes.data == at


def test_a_buffer_of_about_the_size_does():
    spares = Spares()
    at = spares.take(1000).ctypes.data
    assert spares.take(1100).ctypes.data == at
    small, large = spares.take(100), spares.take(100_000)
    assert small.size == 100 and at not in (small.ctypes.data, large.ctypes.data)
    assert spares.take(0).size == 0


def test_few_buffers_are_kept():
    spares = Spares()
    taken = [spares.take(100) for _ in range(2 * SPARES)]
    places = {one.ctypes.data for one in taken}
    taken.clear()
    again = [spares.take(100) for _ in range(2 * SPARES)]
    assert len(places & {one.ctypes.data for one in again[:SPARES]}) == SPARES
    assert len(spares._free) == 0


def test_arrays_of_a_step_stay_while_others_come():
    tables, raw = Tables(), memoryview(golden())
    table = tables.read(raw)
    first = table.layout.arrays(body(), table.places, tables.spares)
    kept = first[1].model["mask"]
    del first
    other = body()
    other[320:344] = np.array([1, 7, 0, 2, 8, 1], "<i4").view(np.uint8)
    later = [table.layout.arrays(other, table.places, tables.spares) for _ in range(3)]
    assert kept.tolist() == [[0.0, 5.0, 6.0]]
    assert [one[1].model["mask"].tolist() for one in later] == [[[7.0, 8.0, 9.0]]] * 3


def test_aligned():
    assert all(aligned(size).ctypes.data % 64 == 0 for size in range(1, 2000, 37))
