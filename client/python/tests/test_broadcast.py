"""Batches that one rank fetches and torch.distributed hands to its group: real processes."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch")
pytest.importorskip("millrace.broadcast", reason="this torch has no torch.distributed")

from processes import needs_binary, real_service, write_job  # noqa: E402

RANK = """
import hashlib, json, os, sys
sys.path[:0] = {paths!r}
import torch.distributed as dist
import millrace.broadcast
rank, address, steps = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
resume, fails, meet = sys.argv[4:]
dist.init_process_group("gloo", init_method="file://" + meet, rank=rank, world_size=2)
batches = millrace.broadcast.Batches(
    address, group=dist.new_group([0, 1]), state_every=1, dp_rank=0, tp_rank=rank, tp_size=2)
if resume:
    state = json.loads(resume)
    batches.load_state_dict({{**state, "token": bytes.fromhex(state["token"])}})
calls, whole = [], millrace.Loader.state_at
def state_at(loader, *at):
    calls.append(at)
    if fails and len(calls) == 3:  # once
        raise millrace.LostError("the service is gone")
    return whole(loader, *at)
millrace.Loader.state_at = state_at
seen, state = [], None
while len(seen) < steps:
    try:
        batch = next(batches)
        digest = hashlib.sha256()
        for key, value in sorted(dict(batch).items()):
            value = value.numpy().tobytes() if hasattr(value, "numpy") else repr(value).encode()
            digest.update(key.encode() + value)
        seen.append([batch.step, batch.microbatch, batch.rows, digest.hexdigest()])
        state = batch.state_dict()
    except millrace.Error as error:
        seen.append([type(error).__name__, str(error)])
batches.close()
if state:
    state["token"] = state["token"].hex()
print(json.dumps([seen, state]), flush=True)
os._exit(0)  # threads of gloo that still run at an orderly end may abort the process (PyTorch 1.13)
"""


def run(address, folder, steps, resume="", fails=""):
    """Runs two ranks, tp=2, and returns what each saw and the state of its last batch.

    fails: a request of the first rank for a state does, once.
    """
    here = pathlib.Path(__file__).parent
    code = RANK.format(paths=[str(here.parent / "src")])
    meet = folder / f"meet{len(list(folder.iterdir()))}"
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(rank), address, str(steps), resume, fails, str(meet)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    done = [rank.communicate(timeout=120) for rank in ranks]
    for rank, (_, errors) in zip(ranks, done):
        assert rank.returncode == 0, errors
    return [json.loads(out.splitlines()[-1]) for out, _ in done]


def written(folder, said):
    """Writes a job of tp=2; returns the spec's path."""
    spec = write_job(folder / "job", dp=1, tp=2)
    spec.write_text(spec.read_text().replace("output: {", "output: {" + said))
    return spec


@needs_binary
def test_one_rank_of_the_group_fetches(tmp_path):
    spec = written(tmp_path, "broadcast_at: tp, ")
    with real_service(spec) as address:
        whole = run(address, tmp_path, 6)
        assert whole[0] == whole[1] and len(whole[0][0]) == 6
    with real_service(spec) as address:
        begun = run(address, tmp_path, 2)
        rest = run(address, tmp_path, 4, resume=json.dumps(begun[1][1]))
    assert [a[0] + b[0] for a, b in zip(begun, rest)] == [seen for seen, _ in whole]


@needs_binary
def test_all_ranks_get_a_batch_whose_state_did_not_come(tmp_path):
    spec = written(tmp_path, "broadcast_at: tp, ")
    with real_service(spec) as address:
        whole, _ = run(address, tmp_path, 6)
    with real_service(spec) as address:
        first, second = run(address, tmp_path, 7, fails="state")
    assert first == second and first[1] == whole[1]
    lost = ["LostError", "the service is gone"]
    assert first[0] == [*whole[0][:2], lost, *whole[0][2:]]


@needs_binary
def test_a_job_without_broadcast_is_refused_on_each_rank(tmp_path):
    with real_service(written(tmp_path, "")) as address:
        (first, _), (second, _) = run(address, tmp_path, 1)
    assert first[0][0] == "LostError" and "another rank" in first[0][1]
    assert second[0][0] == "UserError" and "write output.broadcast_at: tp" in second[0][1]
