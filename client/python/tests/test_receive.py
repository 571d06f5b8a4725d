"""Frames that break the protocol are bugs, said with step and place."""

from __future__ import annotations

import io

import numpy as np
import pytest
from fake import Service

from millrace import BugError, UserError
from millrace.messages import BatchHeader, Frame, Microbatch, Tensor
from millrace.receive import Extra, aligned, receive

TENSOR = Tensor("tokens", "int32", [2, 3], 64, 24)


def frames(tensor=TENSOR, size=88, step=5, bodies=(bytes(88),)):
    header = BatchHeader(step, False, size, [Microbatch([tensor])]).encode()
    yield Frame(header, bodies[0]).encode()
    for body in bodies[1:]:
        yield Frame(b"", body).encode()


def test_bodies_are_joined():
    body = bytes(64) + np.arange(6, dtype="<i4").tobytes()
    for cuts in [(0,), (0, 1), (0, 64, 70, 87), (0, 88)]:
        bodies = [body[a:b] for a, b in zip(cuts, (*cuts[1:], len(body)))]
        step = receive(frames(bodies=bodies), 5)
        assert step.microbatches[0].arrays["tokens"].tolist() == [[0, 1, 2], [3, 4, 5]]


RUNS = ([[2, 5, 1], [1, 0, 0], [3, 2, 0], [2, 0, 1]], [5, 6, 0, 2, 2, 2, 0, 1])


@pytest.mark.parametrize(
    ("wire", "dtype", "sent", "values"),
    [
        ("int32", "int64", [-100, 0, 2**31 - 1], [-100, 0, 2**31 - 1]),
        ("runs", "int64", *RUNS),
        ("runs", "int32", *RUNS),
        ("runs", "float32", *RUNS),
        ("runs", "int64", [[3, 7, 0]], [7, 7, 7]),
    ],
)
def test_tensors_are_widened(wire, dtype, sent, values):
    body = np.array(sent, "<i4").tobytes()
    tensor = Tensor("x", dtype, [1, len(values)], 0, len(body), wire)
    (part,) = receive(frames(tensor, len(body), bodies=(body,)), 5).microbatches
    array = part.arrays["x"]
    assert array.dtype == dtype and array.tolist() == [values]
    assert array.flags.writeable and array.ctypes.data % 64 == 0


@pytest.mark.parametrize("runs", [[[3, 0, 0]], [[5, 0, 0]], [[5, 0, 0], [-1, 0, 0]], [[4, 0, 2]]])
def test_runs_that_cannot_be(runs):
    body = np.array(runs, "<i4").tobytes()
    tensor = Tensor("x", "int64", [4], 0, len(body), "runs")
    with pytest.raises(BugError, match="runs that are not 4 elements"):
        receive(frames(tensor, len(body), bodies=(body,)), 5)


@pytest.mark.parametrize(
    ("stream", "words"),
    [
        ([], "no frame"),
        ([b"\x0a\x05x"], "reading a frame"),
        ([Frame(b"\xff").encode()], "reading the header"),
        (list(frames(step=6)), "got step 6"),
        (list(frames(bodies=[bytes(80)])), "ended after 80 of 88"),
        (list(frames(bodies=[bytes(80), bytes(9)])), "more than the 88 bytes"),
        (list(frames(Tensor("x", "float64", [3], 0, 24))), "float64"),
        (list(frames(Tensor("x", "int64", [3], 0, 24, "int16"))), "as 'int16'"),
        (list(frames(Tensor("x", "int32", [3], 0, 24, "int64"))), "as 'int64'"),
        (list(frames(Tensor("x", "float32", [6], 64, 24, "int32"))), "as 'int32'"),
        (list(frames(Tensor("x", "int64", [3], 64, 24, "int32"))), "does not fit"),
        (list(frames(Tensor("x", "int64", [5], 64, 20, "runs"))), "does not fit"),
        (list(frames(Tensor("x", "int32", [7], 64, 24))), "does not fit"),
        (list(frames(Tensor("x", "int32", [6], 80, 24))), "does not fit"),
        (list(frames(Tensor("x", "int32", [1 << 63, 1 << 63], 0, 24))), "does not fit"),
        ([Frame(BatchHeader(5).encode()).encode()], "no microbatch"),
    ],
)
def test_broken_streams(stream, words):
    with pytest.raises(BugError, match=words):
        receive(iter(stream), 5)


def test_buffers_are_aligned_and_writable():
    assert aligned(0).size == 0
    for size in (1, 63, 64, 1000):
        buffer = aligned(size)
        assert buffer.size == size and buffer.ctypes.data % 64 == 0 and buffer.flags.writeable


def test_a_stage_without_tensors():
    header = BatchHeader(5, False, 0, [Microbatch(), Microbatch()]).encode()
    step = receive(iter([Frame(header).encode()]), 5)
    assert [part.arrays for part in step.microbatches] == [{}, {}] and not step.end


def test_the_fake_service_keeps_the_protocol():
    step = receive(Service().frames(3, (0, 0, 0, 0)), 3)
    assert len(step.microbatches) == 2 and step.size > 2000


@pytest.mark.parametrize("at", range(4))  # bytes before it: aligned for its type, or not
@pytest.mark.parametrize(
    "array",
    [
        np.arange(24, dtype=np.uint8).reshape(2, 4, 3),
        np.array([-1, 0, 32767], np.int16),
        np.array([[0.5, -0.25]], np.float32),
    ],
)
def test_kept_arrays(at, array):
    file = io.BytesIO()
    np.save(file, array)
    data = np.frombuffer(b"x" * at + file.getvalue(), np.uint8)[at:]
    got = Extra(0, 0, data).array()
    assert got.dtype == array.dtype
    assert got.flags.aligned
    np.testing.assert_array_equal(got, array)


@pytest.mark.parametrize("data", [b"", b"\xff\xd8\xff", b"\x93NUMPY\x01\x00\xff\xff{"])
def test_kept_values_that_are_no_arrays(data):
    with pytest.raises(UserError, match="is not an array"):
        Extra(0, 0, np.frombuffer(data, np.uint8)).array()
