"""millrace.rank and millrace.digest: what was received, and one digest of it all."""

from __future__ import annotations

import hashlib
import json
import struct

import grpc
import numpy as np
import pytest
from fake import Fault

from millrace import digest, rank


def test_digests_of_the_go_implementation():
    """Golden values that internal/batch printed for the same rows."""
    rows = [[np.array([1, 2, 3]), np.array([-1, 70000])], [], [np.array([256])]]
    digests = [digest.row_digest(row) for row in rows]
    assert [d.hex() for d in digests] == [
        "88c50e99cec701d71792454e88527468ca649d3339526eaa909defa2af07dc78",
        "df3f619804a92fdb4057192dc43dd748ea778adc52bc498ce80524c014b81119",
        "9c136156f9587b58c513785bddb5a4f9d518b924798e1c40673b7dab15898171",
    ]
    step = digest.step_digest(7, digests)
    assert step.hex() == "1e0e2192e5bff6c514962ed4d65bda71cfed3dccf8022ef6f1b389120bb997d3"
    chained = digest.chain(bytes(range(32)), step)
    assert chained.hex() == "641307e3e2105c52c95a34c4489b39e8bdf4c25d531b9e87ad2e1ce6171b43d8"


@pytest.mark.parametrize("cp", [1, 2, 4])
@pytest.mark.parametrize("slicing", ["zigzag", "contiguous", "none"])
def test_slices_join(cp, slicing):
    whole = np.arange(3 * 16).reshape(3, 16)
    chunks = np.split(whole, 2 * cp, axis=1)
    parts = {
        "zigzag": [np.concatenate([chunks[r], chunks[2 * cp - 1 - r]], axis=1) for r in range(cp)],
        "contiguous": np.split(whole, cp, axis=1),
        "none": [whole] * cp,
    }[slicing]
    np.testing.assert_array_equal(digest.join_slices(parts, slicing), whole)


def test_whole_slices_must_agree():
    with pytest.raises(digest.UserError, match="different"):
        digest.join_slices([np.zeros((1, 2)), np.ones((1, 2))], "none")


def test_documents_are_cut_without_padding():
    lines = np.arange(20).reshape(2, 10)
    cut = digest.cut(lines, [[3, 4], []], flat=False)
    assert [[d.tolist() for d in row] for row in cut] == [[[0, 1, 2], [3, 4, 5, 6]], []]
    flat = digest.cut(lines.reshape(1, 20), [[3], [5, 4]], flat=True)
    assert [[d.tolist() for d in row] for row in flat] == [
        [[0, 1, 2]], [[3, 4, 5, 6, 7], [8, 9, 10, 11]],
    ]  # fmt: skip
    with pytest.raises(digest.UserError, match="11 tokens in a line of 10"):
        digest.cut(lines, [[11]], flat=False)


def run_ranks(service, tmp_path, *options, ranks=2):
    for dp in range(ranks):
        where = ["--address", service.address, "--dp-rank", str(dp)]
        assert rank.main([*where, "--dump", str(tmp_path / "dump"), *options]) == 0


def expected_chain(service, steps):
    """Computes the chain from the fake service's own arrays, by the definition."""
    value = bytes(32)  # the digest in the token of step 0
    for step in range(steps):
        rows = {}
        for dp in range(service.mesh[0]):
            for number in range(service.microbatches):
                tokens = service.arrays(step, (dp, 0, 0, 0), number)["tokens"]
                for line, info in zip(tokens, service.rows(step, (dp, 0, 0, 0), number)):
                    n = len(info.lengths)
                    content = line[: sum(info.lengths)].astype("<i4").tobytes()
                    head = struct.pack(f"<{n + 1}I", n, *info.lengths)
                    rows[info.row] = hashlib.sha256(head + content).digest()
        head = b"millrace step" + struct.pack("<QQ", step, len(rows))
        joined = b"".join(rows[row] for row in sorted(rows))
        value = hashlib.sha256(value + hashlib.sha256(head + joined).digest()).digest()
        yield f"digest step={step + 1} {value.hex()}"


def test_dumps_of_all_ranks_give_the_chain(serve, tmp_path, capsys):
    service = serve(steps=4)
    run_ranks(service, tmp_path)
    capsys.readouterr()
    assert digest.main([str(tmp_path / "dump")]) == 0
    assert capsys.readouterr().out.splitlines() == list(expected_chain(service, 4))


def test_a_resumed_rank_adds_to_its_dump(serve, tmp_path, capsys):
    service = serve(steps=9)
    state = str(tmp_path / "state-{}.json")
    for dp in range(2):
        where = ["--address", service.address, "--dp-rank", str(dp), "--dump", str(tmp_path / "d")]
        save = ["--save", state.format(dp)]
        assert rank.main([*where, *save, "--steps", "4", "--save-every", "3"]) == 0
        assert rank.main([*where, *save, "--load", state.format(dp), "--steps", "2"]) == 0
    saved = json.loads((tmp_path / "state-0.json").read_text())
    assert saved["step"] == 6
    capsys.readouterr()
    cut = tmp_path / "cut.json"
    cut.write_text(json.dumps(saved | {"token": saved["token"][:-8]}))
    assert rank.main([*where, "--load", str(cut), "--steps", "1"]) == 3
    assert "token" in capsys.readouterr().err
    assert digest.main([str(tmp_path / "d" / "dp0-cp0-pp0-tp0"), str(tmp_path / "d")]) == 0
    assert capsys.readouterr().out.splitlines() == list(expected_chain(service, 6))


def test_a_missing_rank_is_noticed(serve, tmp_path, capsys):
    run_ranks(serve(steps=2), tmp_path, ranks=1)
    assert digest.main([str(tmp_path / "dump")]) == 3
    assert "dp=1" in capsys.readouterr().err
    assert digest.main([str(tmp_path)]) == 3
    assert "no rank.json" in capsys.readouterr().err


def test_one_changed_token_changes_the_chain(serve, tmp_path, capsys):
    service = serve(steps=1)
    run_ranks(service, tmp_path)
    path = tmp_path / "dump" / "dp1-cp0-pp0-tp0" / "step-00000000-0001-of-0002.npz"
    arrays = dict(np.load(path))
    arrays["tokens"][1, 5] += 1
    np.savez(path, **arrays)
    capsys.readouterr()
    assert digest.main([str(tmp_path / "dump")]) == 0
    assert capsys.readouterr().out.splitlines() != list(expected_chain(service, 1))


def test_rank_reports_what_it_got(serve, tmp_path, capsys):
    service = serve(steps=3, format="hf")
    out = tmp_path / "out.json"
    arguments = ["--address", service.address, "--dp-rank", "1", "--json", str(out)]
    assert rank.main(arguments) == 0
    summary = json.loads(out.read_text())
    assert summary["end_of_data"] and summary["state"]["step"] == 3
    assert summary["start"]["rank"] == {"dp": 1, "cp": 0, "pp": 0, "tp": 0}
    lines = capsys.readouterr().out.splitlines()
    for step, line in enumerate(lines):
        hashed = hashlib.sha256()
        for number in range(2):
            for name, array in service.arrays(step, (1, 0, 0, 0), number).items():
                number_like = name == "max_length_q"
                hashed.update(array.astype("<i8").tobytes() if number_like else array.tobytes())
        assert line.startswith(f"step={step} sha256={hashed.hexdigest()} tokens=254 ")
        assert summary["steps"][step]["sha256"] == hashed.hexdigest()
    assert sum(step["bytes"] for step in summary["steps"]) == summary["bytes"]


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (grpc.StatusCode.FAILED_PRECONDITION, 3),
        (grpc.StatusCode.UNAVAILABLE, 4),
        (grpc.StatusCode.INTERNAL, 1),
    ],
)
def test_exit_status(serve, capsys, code, status):
    service = serve()
    service.faults = [("Batch", 1, Fault(code, "so it is"))] * 1000
    timeout = "4" if status == 4 else "60"  # only what is tried again takes all of it
    where = ["--address", service.address, "--dp-rank", "0", "--timeout", timeout]
    assert rank.main(where) == status
    assert "so it is" in capsys.readouterr().err
