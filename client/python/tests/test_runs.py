"""Runs: each way in which they are written gives the elements that they say."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import millrace.runs
from millrace import BugError
from millrace.runs import COPIED, MOST_KNOWN, Runs

IDS = np.arange(100, 6100, dtype="<i4")


def written(runs, dtype="i8"):
    """What runs make, into memory that has something else in it."""
    size = sum(run[0] for run in runs)
    out = np.empty(size, dtype)
    raw, made, again = np.array(runs, "<i4").tobytes(), Runs(), []
    for ids in (IDS, IDS + 1, IDS):  # what is known of them is of the second time
        out[:] = 99
        made.write(raw, out, ids, "x")
        again.append(out.copy())
    np.testing.assert_array_equal(again[0], again[2])
    return out


def wanted(runs, dtype="i8"):
    """The same by a plain loop."""
    elements = []
    for length, first, step in runs:
        if step == COPIED:
            elements += IDS[first : first + length].tolist()
        else:
            elements += [first + step * i for i in range(length)]
    return np.array(elements).astype(dtype)


def check(runs, dtype="i8"):
    np.testing.assert_array_equal(written(runs, dtype), wanted(runs, dtype))


def test_another_thread_may_count_too():
    """Between any two lines of this one."""

    def trace(*_):
        millrace.runs._counted = np.empty(0, "<i4")
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        made = [millrace.runs._counting(n, 3 * n) for n in (10, 9000)]
    finally:
        sys.settrace(before)
    assert [(m[0], m[-1], m.size) for m in made] == [(10, 29, 20), (9000, 26999, 18000)]


@pytest.mark.parametrize("dtype", ["i4", "i8", "f4"])
@pytest.mark.parametrize("long", [1, 3000])
def test_runs(dtype, long):
    runs = [[long, 5, 1], [1, 0, 0], [2 * long, -3, 1], [long, 7, 0], [long, 1 << 20, 1]]
    check(runs, dtype)


@pytest.mark.parametrize("long", [1, 2, 300])
def test_rows_that_are_alike(long):
    row = [[long, 0, 1], [1, -100, 0], [long, 4, 0]]
    check(row * 5)
    check(row * 5, "f4")
    check(row * 60)  # more than what is kept as it was written
    check([[2 * long + 1, 0, 1]] * 5)
    check([*(row * 4), [long, 0, 1], [1, -100, 0], [long, 5, 0]])


@pytest.mark.parametrize("shift", [-2, 0, 1, 40])
def test_copies_of_one_shift(shift):
    runs, at = [[2, -100, 0]], 2
    for length in (500, 700, 1, 64):
        runs += [[length, at + shift, COPIED], [1, 0, 0]]
        at += length + 1
    check(runs)
    check([*runs, [300, 5, 1]])
    check([*runs, [1, at + 1 + shift, COPIED]], "i4")
    check(runs * 1)


def test_copies_of_any_shift():
    check([[500, 3, COPIED], [1, 0, 0], [500, 2, COPIED], [6000, 0, COPIED], [3, 0, 1]])
    check([[1, n % 7, (0, 1, COPIED)[n % 3]] for n in range(300)])
    check([[2, n % 7, (0, 1, COPIED)[n % 3]] for n in range(300)])


def test_random_runs():
    draw = np.random.default_rng(1)
    for _ in range(300):
        most = int(draw.choice([1, 3, 200]))
        runs = [
            [int(draw.integers(1, most + 1)), int(draw.integers(0, 5000)), int(draw.integers(0, 3))]
            for _ in range(draw.integers(1, 40))
        ]
        check(runs)


@pytest.mark.parametrize(
    "runs",
    [
        [[3, 0, 0]],
        [[5, 0, 0]],
        [[5, 0, 0], [-1, 0, 0]],
        [[4, 0, 3]],
        [[4, 0, -1]],
        [[4, -1, COPIED]],
        [[4, 5997, COPIED]],
    ],
)
@pytest.mark.parametrize("times", [1, 1000])
def test_runs_that_cannot_be(runs, times):
    raw = np.array([[n * times, first, step] for n, first, step in runs], "<i4").tobytes()
    with pytest.raises(BugError, match="runs that are not"):
        Runs().write(raw, np.empty(4 * times, "i8"), IDS, "x")


def test_known_runs_of_other_tensors():
    """The same runs of another type or size, or of other ids, are other runs."""
    raw, runs = np.array([[4, 2, COPIED]], "<i4").tobytes(), Runs()
    for _ in range(3):
        for out in (np.empty(4, "i8"), np.empty(4, "i4")):
            for ids in (IDS, IDS + 1, IDS[:6]):
                runs.write(raw, out, ids, "x")
                assert out.tolist() == ids[2:6].tolist()
        for wrong in (np.empty(5, "i8"), np.empty(3, "i8")):
            with pytest.raises(BugError, match="tensor y has runs that are not"):
                runs.write(raw, wrong, IDS, "y")
        with pytest.raises(BugError, match="runs that are not"):
            runs.write(raw, np.empty(4, "i8"), IDS[:5], "x")


def test_what_is_known_is_bounded():
    runs, out = Runs(), np.empty(3, "i8")
    for n in range(5 * MOST_KNOWN):
        for _ in range(2):
            runs.write(np.array([[3, n, 1]], "<i4").tobytes(), out, IDS, "x")
            assert out.tolist() == [n, n + 1, n + 2]
    assert len(runs._known) <= MOST_KNOWN and len(runs._once) <= MOST_KNOWN
