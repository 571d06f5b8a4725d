"""Against the real service: set MILLRACE_BIN to the millrace binary."""

from __future__ import annotations

import io
import itertools
import json
import pathlib
import re
import tarfile
import threading

import numpy as np
import pytest
from processes import add_masked, needs_binary, real_service, write_job

import millrace
from millrace import digest, rank, stages
from millrace.messages import Mesh, ResumeToken

pytestmark = needs_binary

STEPS = 12
AXES = ("dp", "cp", "pp", "tp")


def ranks_of(sizes):
    """Returns the connect() arguments of every rank of a mesh."""
    places = itertools.product(*(range(sizes.get(axis, 1)) for axis in AXES))
    return [
        {f"{axis}_rank": at for axis, at in zip(AXES, place)}
        | {f"{axis}_size": sizes.get(axis, 1) for axis in AXES}
        for place in places
    ]


def in_threads(work, arguments):
    """Runs work(*argument) for each argument at once; returns the results in order."""
    results, errors = [None] * len(arguments), []

    def run(at):
        try:
            results[at] = work(*arguments[at])
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(at,)) for at in range(len(arguments))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    if errors:
        raise errors[0]
    assert not any(thread.is_alive() for thread in threads), "a rank hangs"
    return results


def plain(batch):
    """Returns a batch as comparable values: key, dtype, shape and bytes of each tensor."""
    arrays = {key: np.asarray(value) for key, value in batch.items()}
    return [(key, str(a.dtype), a.shape, a.tobytes()) for key, a in arrays.items()]


def consume(address, place, count, state=None, prefetch=2):
    """Returns the next ``count`` microbatches of a rank and the states around them."""
    with millrace.connect(address, prefetch=prefetch, timeout=60, **place) as loader:
        if state is not None:
            loader.load_state_dict(state)
        states, batches = [loader.state_dict()], []
        for _ in range(count):
            batches.append(plain(next(loader)))
            states.append(loader.state_dict())
        return batches, states


MEGATRON_KEYS = {
    "first": ["tokens", "position_ids"],
    "last": ["labels", "loss_mask"],
    "packed": ["cu_seqlens", "max_seqlen"],
}


@pytest.mark.parametrize(
    ("sizes", "slicing"),
    [
        ({"dp": 2}, "zigzag"),
        ({"dp": 2, "cp": 2}, "zigzag"),
        ({"dp": 1, "cp": 2}, "contiguous"),
        ({"dp": 1, "cp": 2, "pp": 2}, "none"),
        ({"dp": 2, "pp": 3}, "zigzag"),
        ({"dp": 1, "tp": 2}, "zigzag"),
    ],
)
def test_shapes_and_dtypes_for_the_mesh(tmp_path, sizes, slicing):
    spec = write_job(tmp_path, cp_slicing=slicing, **sizes)
    ranks = ranks_of(sizes)
    with real_service(spec) as address:
        results = in_threads(lambda place: consume(address, place, 6), [(r,) for r in ranks])
    width = 128 if slicing == "none" else 128 // sizes.get("cp", 1)
    for place, (batches, _) in zip(ranks, results):
        pp, last = place["pp_rank"], place["pp_size"] - 1
        want = MEGATRON_KEYS["first"] * (pp == 0) + MEGATRON_KEYS["last"] * (pp == last)
        for batch in batches:
            assert [key for key, *_ in batch] == want + MEGATRON_KEYS["packed"]
            for key, dtype, shape, _ in batch:
                if key in want:
                    assert shape == (2, width)
                    assert dtype == ("float32" if key == "loss_mask" else "int64")
                else:
                    assert dtype == "int32" and shape[0] == 2
    same_tensor_ranks = [
        r for r, p in zip(results, ranks) if (p["dp_rank"], p["cp_rank"]) == (0, 0)
    ]
    if sizes.get("tp"):
        assert same_tensor_ranks[0][0] == same_tensor_ranks[1][0]
    if slicing == "none":  # every CP rank has the whole sequence
        assert results[0][0] == results[2][0]


@pytest.mark.parametrize("prefetch", [0, 2])
def test_a_rank_whose_peers_do_not_come_says_which(tmp_path, prefetch, caplog, monkeypatch):
    monkeypatch.setattr("millrace.session.WAIT_LOG_AFTER", 1.5)  # constructors report each second
    absent = "1 of 2 ranks have not asked for a batch yet: rank dp=1 cp=0 pp=0 tp=0"
    with (
        real_service(write_job(tmp_path, dp=2)) as address,
        millrace.connect(address, dp_rank=0, prefetch=prefetch, timeout=4) as loader,
        pytest.raises(millrace.LostError, match="waited"),
    ):
        while True:
            next(loader)
    words = [record.message for record in caplog.records if "has waited" in record.message]
    assert len(words) == 1 and f"the service waits for trainers: {absent}" in words[0]


def test_ranks_are_numbered_as_the_job_says(tmp_path):
    spec = write_job(tmp_path, dp=2, cp=2, pp=2)
    with (
        real_service(spec) as address,
        millrace.connect(address, dp_rank=0, dp_size=2, cp_rank=0, pp_rank=0) as loader,
    ):
        places = [loader.coordinates(rank) for rank in range(8)]
        assert places[0] == {"dp": 0, "cp": 0, "pp": 0, "tp": 0}
        assert len({tuple(place.values()) for place in places}) == 8
        for rank, place in enumerate(places):
            assert sum(place[axis] * n for axis, n in loader.strides.items()) == rank
        assert [place["cp"] for place in places] == [0, 1] * 4  # the innermost


def test_hf_batches(tmp_path):
    spec = write_job(tmp_path, dp=1, format="hf")
    with real_service(spec) as address, millrace.connect(address, dp_size=1) as loader:
        batch = next(loader)
        assert loader.format == "hf"
        assert list(batch)[:3] == ["input_ids", "position_ids", "labels"]
        tokens = batch["input_ids"]
        assert tokens.dtype == np.int64 and tokens.shape[0] == 1
        assert type(batch["max_length_q"]) is int
        ends = batch["cu_seq_lens_q"]
        assert ends.dtype == np.int32 and ends[0] == 0 and ends[-1] == tokens.shape[1]
        assert max(np.diff(ends)) == batch["max_length_q"]
        lengths = [s.length for row in loader.lineage for s in row.segments]
        assert lengths == np.diff(ends)[: len(lengths)].tolist()


def test_lineage_agrees_with_the_batch(tmp_path):
    spec = write_job(tmp_path, dp=1)
    with real_service(spec) as address, millrace.connect(address, dp_size=1) as loader:
        for _ in range(8):
            batch = next(loader)
            for line, row in zip(batch["cu_seqlens"], loader.lineage):
                ends = np.cumsum([segment.length for segment in row.segments])
                assert line[0] == 0 and line[1 : len(ends) + 1].tolist() == ends.tolist()
                assert {segment.source for segment in row.segments} <= {"stories", "notes"}


def test_states_are_equal_on_all_ranks(tmp_path):
    sizes = {"dp": 2, "cp": 2}
    spec = write_job(tmp_path, **sizes)
    with real_service(spec) as address:
        results = in_threads(
            lambda place, prefetch: consume(address, place, 9, prefetch=prefetch),
            [(place, at) for at, place in enumerate(ranks_of(sizes))],
        )
    for _, states in results:
        assert states == results[0][1]


@pytest.mark.parametrize("prefetch", [0, 2])
def test_resume_at_each_step_in_a_fresh_service(tmp_path, prefetch):
    spec = write_job(tmp_path, dp=2)
    ranks = ranks_of({"dp": 2})

    def run(address, count, state=None):
        return in_threads(consume, [(address, r, count, state, prefetch) for r in ranks])

    with real_service(spec) as address:
        undisturbed = run(address, 2 * STEPS + 4)
    per_step = 2
    for step in range(STEPS + 1):
        for offset in (0, 1) if step in (0, 5) else (0,):
            done = step * per_step + offset
            state = undisturbed[0][1][done]
            assert (state["step"], state["microbatch"]) == (step, offset)
            with real_service(spec) as address:
                resumed = run(address, 3, state)
            for (want, states), (got, new_states) in zip(undisturbed, resumed):
                assert got == want[done : done + 3], f"resumed after step {step}"
                assert new_states == states[done : done + 4]


def test_resume_twice(tmp_path):
    spec = write_job(tmp_path, dp=1)
    (place,) = ranks_of({"dp": 1})
    with real_service(spec) as address:
        want, _ = consume(address, place, 30)
    state, got = None, []
    for part in (7, 1, 12, 10):
        with real_service(spec) as address:
            batches, states = consume(address, place, part, state)
        got, state = got + batches, states[-1]
    assert got == want


def test_joining_refuses_what_does_not_fit(tmp_path):
    spec = write_job(tmp_path / "one", dp=2)
    with real_service(write_job(tmp_path / "two", dp=2, name="other")) as address:
        _, (foreign, _) = consume(address, ranks_of({"dp": 2})[0], 1)
    with real_service(spec) as address:
        for options, words in [
            ({"dp_rank": 2}, "dp=2"),
            ({"dp_rank": 0, "dp_size": 4}, "dp size 4"),
            ({"dp_rank": 0, "tp_rank": 1}, "tp=1"),
            ({"dp_rank": 0, "job": "nobody"}, "nobody"),
            ({"dp_rank": 0, "identity": "00" * 32}, "spec 0000"),
        ]:
            loader = millrace.connect(address, timeout=30, **options)
            with loader, pytest.raises(millrace.UserError, match=words):
                next(loader)
        with millrace.connect(address, timeout=30, dp_rank=0) as loader:
            loader.load_state_dict({**foreign, "token": foreign["token"][:-3]})
            with pytest.raises(millrace.UserError):
                next(loader)


def test_the_middle_of_a_step_is_for_the_same_mesh(tmp_path):
    """Ranks of another one go on from whole steps only."""
    with real_service(write_job(tmp_path / "one", dp=1)) as address:
        _, states = consume(address, ranks_of({"dp": 1})[0], 4)
    with real_service(write_job(tmp_path / "two", dp=2)) as address:
        for place in ranks_of({"dp": 2}):
            with pytest.raises(millrace.UserError, match="with dp=1 cp=1, this one has dp=2 cp=1"):
                consume(address, place, 1, states[1])
        assert states[4]["microbatch"] == 0
        in_threads(consume, [(address, place, 2, states[4]) for place in ranks_of({"dp": 2})])


def test_the_token_of_another_job_is_refused(tmp_path):
    place = ranks_of({"dp": 1})[0]
    with real_service(write_job(tmp_path / "one", dp=1, packing="false")) as address:
        _, states = consume(address, place, 4)
    with real_service(write_job(tmp_path / "two", dp=1)) as address:
        loader = millrace.connect(address, timeout=30, **place)
        loader.load_state_dict(states[-1])
        with loader, pytest.raises(millrace.UserError, match="token"):
            next(loader)


def test_end_of_data_is_at_one_step_for_all_ranks(tmp_path):
    spec = write_job(tmp_path, dp=2)
    spec.write_text(spec.read_text().replace("mix:\n", "mix:\n  epochs: 1\n"))

    def drain(address, place):
        with millrace.connect(address, timeout=60, **place) as loader:
            count = sum(1 for _ in loader)
            assert loader.end and next(loader, None) is None
            return count, loader.state_dict()

    with real_service(spec) as address:
        (first, state), (second, other) = in_threads(
            drain, [(address, place) for place in ranks_of({"dp": 2})]
        )
    assert first == second > 2 * STEPS and state == other
    assert (state["step"], state["microbatch"]) == divmod(first, 2)


@pytest.mark.parametrize(
    ("sizes", "slicing", "format"),
    [
        ({"dp": 2, "cp": 2, "pp": 2}, "zigzag", "megatron"),
        ({"dp": 2, "cp": 2}, "contiguous", "megatron"),
        ({"dp": 2, "cp": 2}, "none", "megatron"),
        ({"dp": 2, "cp": 2}, "zigzag", "hf"),
        ({"dp": 1, "tp": 2}, "zigzag", "hf"),
        ({"dp": 2, "cp": 2}, "zigzag", "megatron-thd"),
        ({"dp": 1, "cp": 2, "pp": 2}, "none", "megatron-thd"),
        ({"dp": 1, "cp": 2, "pp": 2}, "none", "torchtitan"),
        ({"dp": 1, "cp": 2}, "zigzag", "jax"),
    ],
)
def test_digest_of_what_was_received(tmp_path, capsys, sizes, slicing, format):
    """The chain from Python's reading of all ranks' tensors is the one in the tokens."""
    spec = write_job(tmp_path / "job", cp_slicing=slicing, format=format, **sizes)
    add_masked(spec)
    places = ranks_of(sizes)

    def run(address, at):
        flags = [
            text for axis in AXES for text in (f"--{axis}-rank", str(places[at][f"{axis}_rank"]))
        ]
        save = ["--save", str(tmp_path / f"state-{at}.json"), "--dump", str(tmp_path / "dump")]
        return rank.main(["--address", address, *flags, *save, "--steps", str(STEPS)])

    with real_service(spec) as address:
        assert in_threads(run, [(address, at) for at in range(len(places))]) == [0] * len(places)
    capsys.readouterr()
    assert digest.main([str(tmp_path / "dump"), "--cp-slicing", slicing]) == 0
    lines = capsys.readouterr().out.splitlines()
    state = rank.from_json(json.loads((tmp_path / "state-0.json").read_text()))
    token = ResumeToken.decode(state["token"])
    assert len(lines) == STEPS
    assert lines[-1] == f"digest step={STEPS} {token.digest.hex()}"


KEPT_SPEC = """
name: kept
seed: 3
sources:
  - name: pictures
    files: "*.tar"
    keep: [jpg]
    transforms: [{text: "{txt}"}, {tokenize: bytes}, {append_eod: {}}]
batch: {sequence_length: 64, sequences: 4}
topology: {dp: 2, pp: 2}
"""


def test_kept_columns(tmp_path):
    """The bytes of image members reach the first stage, apart from the model's keys."""
    pictures = {}
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for n in range(12):
            pictures[n] = bytes([n]) * (n * 100 + 1)
            for name, data in ((f"{n:03d}.txt", b"number %d" % n), (f"{n:03d}.jpg", pictures[n])):
                member = tarfile.TarInfo(name)
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
    spec = tmp_path / "kept.yaml"
    spec.write_text(KEPT_SPEC)
    with real_service(spec) as address:
        ranks = [
            millrace.connect(address, dp_rank=dp, dp_size=2, pp_rank=pp, pp_size=2)
            for dp in range(2)
            for pp in range(2)
        ]
        seen = 0
        for _ in range(3):
            for rank in ranks:
                batch = next(rank)
                assert not any(name.startswith("keep") for name in batch)
                if "tokens" not in batch:
                    assert rank.extras == {}
                    continue
                for extra in rank.extras["jpg"]:
                    row = rank.lineage[extra.row].segments
                    start = sum(s.length for s in row[: extra.document])
                    tokens = batch["tokens"][extra.row, start : start + row[extra.document].length]
                    number = int(bytes(tokens[:-1].astype(np.uint8)).split()[-1])
                    assert extra.data.tobytes() == pictures[number]
                    seen += 1
        assert seen > 12
        for rank in ranks:
            rank.close()


@pytest.mark.parametrize("way", ["shared", "stream", "calls"])
def test_a_choice_of_tensors(tmp_path, way):
    """Batches of some tensors have those of whole ones, labels without the tokens they are of."""
    spec = write_job(tmp_path, dp=1, pp=2)
    first, last = ranks_of({"dp": 1, "pp": 2})
    with real_service(spec) as address:
        wholes = [one for one, _ in in_threads(consume, [(address, p, 6) for p in (first, last)])]
        chosen = {"tensors": ["labels", "tokens", "max_seqlen"], "way": way, "start": "beginning"}
        places = [(address, place | chosen, 6) for place in (first, last)]
        parts = [one for one, _ in in_threads(consume, places)]
    for whole, part, model in zip(wholes, parts, ("tokens", "labels")):
        want = [[t for t in batch if t[0] in (model, "max_seqlen")] for batch in whole]
        assert part == want and len(want[0]) == 2


@pytest.mark.parametrize("way", ["shared", "stream", "calls"])
def test_a_choice_of_tensors_that_no_stage_has(tmp_path, way):
    """Each stage refuses them, also beside those of its own and of others."""
    with real_service(write_job(tmp_path, dp=1, pp=3)) as address:
        for place in ranks_of({"dp": 1, "pp": 3}):
            chosen = {"tensors": ["labels", "tokens", "lables"], "way": way}
            refused = pytest.raises(millrace.UserError, match=r"has 'lables', .* they have .*")
            with millrace.connect(address, **place, **chosen) as loader, refused as error:
                next(loader)
            assert {"tokens", "labels", "cu_seqlens"} < set(re.split("[ ,]+", str(error.value)))


@pytest.mark.parametrize("format", sorted(stages.FIRST))
@pytest.mark.parametrize("cp", [1, 2])
def test_the_tensors_of_stages(tmp_path, format, cp):
    """Those that a stage has alone are what the client takes for them."""
    fields = {"cp": cp, "format": format, "cp_slicing": "none"}
    if format == "megatron-thd" and cp > 1:
        fields |= {"rows": 1, "batch": ", context_split: 2", "cp_slicing": "zigzag"}
    with real_service(write_job(tmp_path, dp=1, pp=3, **fields)) as address:
        places = [place for place in ranks_of({"cp": cp, "pp": 3}) if place["cp_rank"] == 0]
        names = [[name for name, *_ in consume(address, place, 1)[0][0]] for place in places]
    for stage, own in enumerate(names):
        others = stages.elsewhere(format, Mesh(dp=1, cp=cp, pp=3, tp=1), stage)
        assert sorted([*own, *others]) == sorted(set().union(*names)), stage


def test_the_stages_of_every_format():
    """The client knows all formats that docs/bytes.md has, which the service's tests compare."""
    text = (pathlib.Path(__file__).parents[3] / "docs" / "bytes.md").read_text(encoding="utf-8")
    assert set(re.findall("^### `format: (.*)`$", text, re.MULTILINE)) == set(stages.FIRST)
    assert stages.FIRST.keys() == stages.LAST.keys()


def test_tensors_that_there_are_not(tmp_path):
    for wrong in ("tokens", b"tokens", [], [1], ["tokens", 5], 5, np.array("tokens")):
        with pytest.raises(millrace.UserError, match=r"tensors is .*: give a list of names"):
            millrace.connect("127.0.0.1:1", dp_size=1, tensors=wrong)
    with real_service(write_job(tmp_path, dp=1)) as address:
        for way in ("shared", "stream", "calls"):
            with millrace.connect(address, dp_size=1, tensors=["token"], way=way) as loader:
                for _ in range(2):
                    with pytest.raises(millrace.UserError, match=r"'token', .* have tokens, pos"):
                        next(loader)
