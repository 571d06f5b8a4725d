"""Changes of a running job, against the real service: set MILLRACE_BIN."""

from __future__ import annotations

import json
import subprocess

import pytest
from processes import BINARY, needs_binary, real_service, write_job
from test_service import in_threads, plain, ranks_of

import millrace
from millrace import digest, rank

pytestmark = needs_binary


class Run:
    """Ranks that consume a job and keep what they got, and the changes made to it."""

    def __init__(self, spec, folder):
        self.spec, self.folder = spec, folder
        self.changes = []
        self.phases = 0
        self.state = None  # the file of the last one

    def change(self, address, change):
        """Makes a change; returns and remembers the step that the service says."""
        step = millrace.change(address, change)
        self.changes.append({**change, "step": step})
        return step

    def ranks(self, address, sizes, steps=None):
        """Runs all ranks of a mesh from the last state on; returns their summaries."""
        self.phases += 1
        place, loaded = self.folder / str(self.phases), self.state
        place.mkdir(parents=True)

        def one(at, axes):
            flags = [f"--{name.replace('_', '-')}={value}" for name, value in axes.items()]
            flags += [f"--dump={place / 'dump'}", f"--json={place / f'{at}.json'}"]
            flags += [f"--save={place / f'state-{at}.json'}", "--timeout=60"]
            flags += [f"--load={loaded}"] if loaded else []
            flags += [f"--steps={steps}"] if steps else []
            assert rank.main([f"--address={address}", *flags]) == 0
            return json.loads((place / f"{at}.json").read_text())

        summaries = in_threads(one, list(enumerate(ranks_of(sizes))))
        assert all(summary["state"] == summaries[0]["state"] for summary in summaries)
        self.state = place / "state-0.json"
        return summaries

    def received(self, capsys):
        """Returns the digests of all steps, from Python's reading of the ranks' tensors."""
        capsys.readouterr()
        for phase in range(1, self.phases + 1):
            assert digest.main([str(self.folder / str(phase) / "dump")]) == 0
        return capsys.readouterr().out.splitlines()

    def reference(self, steps):
        """Returns what the reference reader computes with the same changes."""
        file = self.folder / "changes.jsonl"
        file.write_text("".join(json.dumps(change) + "\n" for change in self.changes))
        command = [BINARY, "reference", self.spec, "--steps", str(steps), "--every"]
        done = subprocess.run([*command, "--changes", file], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return [line for line in done.stdout.splitlines() if line.startswith("digest")]


def test_topology_changes_back_and_forth(tmp_path, capsys):
    """From two data-parallel ranks to one, and back in a service that never saw the first."""
    spec = write_job(tmp_path / "job", dp=2)
    run = Run(spec, tmp_path / "run")
    with real_service(spec) as address:
        with pytest.raises(millrace.LostError, match="the first trainer to join"):
            # What is waited for is said a tenth of the time before its end.
            millrace.change(address, {"topology": {"dp": 1}}, timeout=5)
        run.ranks(address, {"dp": 2}, steps=2)
        there = run.change(address, {"step": 20, "topology": {"dp": 1}})
        for summary in run.ranks(address, {"dp": 2}):
            assert summary["steps"][-1]["step"] == there - 1 == 19
            assert summary["topology"] == {"tp": 1, "cp": 1, "dp": 1, "pp": 1}
            assert not summary["end_of_data"]
        (alone,) = run.ranks(address, {"dp": 1}, steps=2)
        assert alone["topology"] is None
        back = run.change(address, {"topology": {"dp": 2}})  # as soon as it can
        (alone,) = run.ranks(address, {"dp": 1})
        assert [s["step"] for s in alone["steps"]] == list(range(there + 2, back))
        assert alone["topology"]["dp"] == 2
        with millrace.connect(address, timeout=60, dp_rank=0, dp_size=1) as old:
            old.load_state_dict(rank.from_json(json.loads(run.state.read_text())))
            with pytest.raises(millrace.UserError, match="dp size 1"):
                next(old)
    with real_service(spec) as address:
        for summary in run.ranks(address, {"dp": 2}, steps=4):
            assert [step["step"] for step in summary["steps"]] == list(range(back, back + 4))
    assert run.received(capsys) == run.reference(back + 4)


EXTRA = {
    "name": "extra",
    "files": "stories.jsonl",
    "transforms": [{"text": "{text}"}, {"tokenize": "bytes"}, {"append_eod": {}}],
}


@pytest.mark.parametrize(
    "change",
    [
        {"weights": {"notes": 1}, "reason": "stories are learned"},
        {"add": {"source": EXTRA, "weight": 0.5}},
        {"sequence_length": 256, "sequences": 16},
    ],
    ids=["weights", "add", "resize"],
)
def test_ranks_go_on_over_a_change(tmp_path, capsys, change):
    spec = write_job(tmp_path / "job", dp=2)
    run = Run(spec, tmp_path / "run")
    with real_service(spec) as address:
        run.ranks(address, {"dp": 2}, steps=3)
        step = run.change(address, change)
        run.ranks(address, {"dp": 2}, steps=step + 4 - 3)
        loader = millrace.connect(address, timeout=60, dp_rank=0, dp_size=2)
        with loader:
            loader.load_state_dict(rank.from_json(json.loads(run.state.read_text())))
            next(loader)
            seen = {s.source for row in loader.lineage for s in row.segments}
            if "weights" in change:
                assert seen == {"notes"}
            if "add" in change:
                assert "extra" in seen and loader.sources == ["stories", "notes", "extra"]
            wide = "sequences" in change
            shape = (loader.rows, loader.sequence_length, loader.num_microbatches)
            assert shape == ((16, 256, 4) if wide else (8, 128, 2))
    assert run.received(capsys) == run.reference(step + 4)


def test_a_change_that_the_job_refuses(tmp_path):
    with real_service(write_job(tmp_path, dp=1)) as address:
        with millrace.connect(address, timeout=60, dp_size=1) as loader:
            next(loader)
        for change, words in [
            ({"pause": "storis"}, 'did you mean "stories"'),
            ({"weights": {"stories": 1}, "pause": "notes"}, "changes one thing"),
            ('{"topology": {"dp": 0}}', "valid is 1 or more"),
            ("{", "EOF"),
        ]:
            with pytest.raises(millrace.UserError, match=words):
                millrace.change(address, change)
        with pytest.raises(millrace.UserError, match="spec 0000"):
            millrace.change(address, {"pause": "notes"}, identity="00" * 32)


def status(address):
    done = subprocess.run([BINARY, "status", address, "--json"], capture_output=True, check=True)
    return json.loads(done.stdout)


def test_the_planner_is_found_at_one_of_several_addresses(tmp_path, monkeypatch):
    """As ranks are given them, where another one may take its place."""
    nobody = "127.0.0.1:1, 127.0.0.1:2"
    with real_service(write_job(tmp_path, dp=1)) as address:
        for several in (f"127.0.0.1:1, {address}", f"{address},127.0.0.1:1"):
            monkeypatch.setenv("MILLRACE_ADDR", several)
            seen, want = (millrace.peek(at, 0, timeout=60) for at in (None, address))
            assert [plain(b) for b in seen.batches] == [plain(b) for b in want.batches]
            with millrace.connect(several, timeout=60, dp_size=1, start="beginning") as loader:
                next(loader)
            assert millrace.state_at(None, 0) == millrace.state_at(address, 0)
            assert millrace.change(None, {"weights": {"notes": 1}}) > 0
    for call in (
        lambda: millrace.peek(nobody, 0),
        lambda: millrace.state_at(nobody, 0),
        lambda: millrace.change(nobody, {"pause": "notes"}),
    ):
        with pytest.raises(millrace.LostError, match=r"asking .* for its status") as lost:
            call()
        assert "may have been made" not in str(lost.value)


def test_reports_steer_the_mix(tmp_path):
    """What is learned worst is seen more: the policy's change is in the status, as any other."""
    spec = write_job(tmp_path, dp=2)
    feedback = "mix:\n  feedback: {policy: exponential, every: 4, rate: 500}\n"
    spec.write_text(spec.read_text().replace("mix:\n", feedback))
    losses, tokens = {"stories": 1.0, "notes": 3.0}, {"stories": 700, "notes": 300}
    with real_service(spec) as address:
        loaders = [millrace.connect(address, timeout=60, dp_rank=r, dp_size=2) for r in range(2)]
        for _ in range(4):
            assert not status(address).get("changes")
            for loader in loaders:
                next(loader)
                next(loader)
                loader.report(losses, tokens, step_seconds=0.1)
        (change,) = [json.loads(text) for text in status(address)["changes"]]
        weights = change["weights"]
        assert weights["notes"] / sum(weights.values()) > 0.4 and weights["stories"] > 0
        with pytest.raises(millrace.UserError, match='did you mean "notes"'):
            loaders[0].report({"note": 1.0})
        for loader in loaders:
            loader.close()
