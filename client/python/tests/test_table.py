"""Tables of batches: the golden bytes that the service writes, and bytes that are none."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from millrace import BugError, UserError
from millrace.memory import Spares, aligned
from millrace.table import AS_COPIES, Choice, Tables

GOLDEN = Path(__file__).parents[3] / "internal/batch/testdata/table.txt"


def golden():
    lines = GOLDEN.read_text().splitlines()
    return bytes.fromhex("".join(line.split("#")[0] for line in lines))


def body():
    made = aligned(344)
    made[:] = 0
    made[0:12] = np.array([1, 2, 3], "<i4").view(np.uint8)
    made[64:88] = np.array([2, 1, 0, 1, 0, 0], "<i4").view(np.uint8)
    made[128:133] = np.frombuffer(b"hello", np.uint8)
    made[192:204] = np.array([4, 5, 2**31 - 1], "<i4").view(np.uint8)
    made[320:344] = np.array([1, 0, 0, 2, 5, 1], "<i4").view(np.uint8)
    return made


def read(raw):
    return Tables().read(memoryview(raw))


@pytest.mark.filterwarnings("error")  # NumPy will not have a shape set from 2.5 on
def test_golden():
    table = read(golden())
    assert table[:8] == (5, 2, 344, 3, 9, False, "", ("math", "codes"))
    assert len(table.lines) == 32 and len(table.origins) == 72
    memory = body()
    first, second = table.layout.arrays(memory, table.places, Spares())
    assert first.model["tokens"].tolist() == [[1, 2, 3]]
    assert first.model["mask"].tolist() == [[1.0, 1.0, 0.0]]
    assert first.kept["keep.x"].tobytes() == b"hello"
    assert second.model["tokens"].tolist() == [[4, 5, 2**31 - 1]]
    assert second.model["mask"].tolist() == [[0.0, 5.0, 6.0]]
    assert second.kept == {} and second.images == {}
    arrays = [*first.model.values(), *first.kept.values(), *second.model.values()]
    assert all(a.flags.writeable and a.ctypes.data % 64 == 0 for a in arrays)
    assert np.shares_memory(first.kept["keep.x"], memory)
    assert [a.dtype for a in arrays] == ["i8", "f4", "u1", "i8", "f4"]


def test_a_layout_is_read_once():
    tables, raw = Tables(), golden()
    first = tables.read(memoryview(raw)).layout
    other = bytearray(raw)
    other[8] = 6  # the step
    assert tables.read(memoryview(other)).layout is first
    other[64 + 264 + 8] = 24  # bytes of the first tensor, whose shape says otherwise
    with pytest.raises(BugError, match="does not fit"):
        tables.read(memoryview(other))
    other = bytearray(raw)
    other[64 + 16] = 2  # the shape [1, 2]
    with pytest.raises(BugError, match="does not fit"):
        tables.read(memoryview(other))


def test_what_is_no_table():
    raw = golden()
    places = (0, 3, 4, 44, 64, 66, 67, 70, 71, 96, 304, 327, 328, 343)
    for at in places:
        broken = bytearray(raw)
        broken[at] ^= 0x81
        with pytest.raises(BugError):
            read(broken)
    for size in range(len(raw)):
        with pytest.raises(BugError):
            read(raw[:size])


def answer(tables, raw):
    """Returns all that a table says, or what is wrong with it."""
    try:
        table = tables.read(memoryview(raw))
    except BugError as err:
        return str(err)
    layout = table.layout
    sections = [(part.part, part.sizes, part.names) for part in layout.sections]
    return table[:8], table[9:], sections, layout.wide


def test_a_layout_takes_from_the_last_one_what_is_alike():
    draw, raw, tables = random.Random(2), golden(), Tables()
    taken = refused = 0
    for _ in range(3000):
        other = bytearray(raw)
        for _ in range(draw.randint(0, 2)):
            other[draw.randrange(64, 344)] = draw.choice([0, 1, 2, 3, 4, 8])
        before = tables._layout.sections
        got = answer(tables, other)
        assert got == answer(Tables(), other)
        refused += isinstance(got, str)
        kept = {id(section) for section in before}
        now = tables._layout.sections
        taken += now is not before and any(id(section) in kept for section in now)
    assert taken > 100 and 100 < refused < 2900


def test_random_bytes_are_refused_or_fit():
    draw, raw = random.Random(1), golden()
    for _ in range(3000):
        broken = bytearray(raw)
        for _ in range(draw.randint(1, 4)):
            broken[draw.randrange(len(raw))] = draw.choice([0, 1, 2, 8, 64, 127, 255])
        try:
            table = read(broken)
            if table.size == 344 and table.layout.wide < 1 << 20:
                table.layout.arrays(body(), table.places, Spares())
        except BugError:
            pass


def test_labels_that_are_copies():
    raw = bytearray(golden())
    raw[64 + 48 + 2 : 64 + 48 + 4] = bytes([3, AS_COPIES])  # the mask becomes int64 and copies
    memory = body()
    memory[64:88] = np.array([2, 1, 2, 1, -100, 0], "<i4").view(np.uint8)
    tables = Tables()
    for ids in ([1, 2, 3], [7, 8, 9]):  # of the same runs
        memory[0:12] = np.array(ids, "<i4").view(np.uint8)
        table = tables.read(memoryview(raw))
        made = table.layout.arrays(memory, table.places, Spares())[0].model
        assert made["tokens"].tolist() == [ids] and made["mask"].tolist() == [[*ids[1:], -100]]
    memory[64:88] = np.array([2, 2, 2, 1, -100, 0], "<i4").view(np.uint8)
    with pytest.raises(BugError, match="runs that are not"):
        table.layout.arrays(memory, table.places, Spares())
    raw[64 + 2 : 64 + 4] = bytes([4, 0])  # the tokens become float32, as they are
    with pytest.raises(BugError, match="has copies of tokens"):
        read(raw)


def test_a_choice_of_tensors():
    memory = body()
    tables = Tables(Choice(("mask",)))
    table = tables.read(memoryview(golden()))
    first, second = table.layout.arrays(memory, table.places, tables.spares)
    assert {name: one.tolist() for name, one in first.model.items()} == {"mask": [[1.0, 1.0, 0.0]]}
    assert second.model["mask"].tolist() == [[0.0, 5.0, 6.0]]
    assert first.kept["keep.x"].tobytes() == b"hello"
    assert table.layout.wide < read(golden()).layout.wide
    with pytest.raises(UserError, match=r"tensors has 'labels', .* have tokens, mask"):
        Tables(Choice(("mask", "labels"))).read(memoryview(golden()))
    for others in (("labels", "more"), None):  # of other stages; of a format that is not known
        some = Tables(Choice(("mask", "labels"), others)).read(memoryview(golden()))
        assert list(some.layout.arrays(memory, some.places, Spares())[0].model) == ["mask"]
    with pytest.raises(UserError, match=r"tensors has 'lables', .* have tokens, mask, labels"):
        Tables(Choice(("mask", "lables"), ("labels",))).read(memoryview(golden()))
