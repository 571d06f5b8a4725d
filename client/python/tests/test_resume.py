"""Trainers that are killed in the middle of a step and resumed: each token once, in order.

Real processes, real frameworks, the real service. ``make py-frameworks`` installs them.
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import time

import pytest
from processes import needs_binary, real_service, write_job

pytestmark = needs_binary

HERE = pathlib.Path(__file__).parent
TIMEOUT = 240  # seconds, for a process that imports a framework on a busy machine
BATCHES = 14

NEEDS = {
    "plain": ["torchdata"],
    "stateful": ["torchdata"],
    "lightning": ["lightning"],
    "lightning_stateful": ["lightning", "torchdata"],
    "trainer": ["accelerate"],
    "accelerate": ["accelerate"],
}


def skip_without(kind):
    for package in ["torch", "transformers", *NEEDS[kind]]:
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed: make py-frameworks")


class Run:
    """One life of a trainer: a process, or two."""

    def __init__(self, kind, address, folder, life, *options, processes=1):
        folder.mkdir(exist_ok=True)
        self.logs = [folder / f"{life}.log"]
        command = [sys.executable, str(HERE / "trainers.py"), kind, address]
        command += [str(folder / "saved"), str(self.logs[0]), *options]
        (folder / "saved").mkdir(exist_ok=True)
        environment = {**os.environ, "PYTHONPATH": str(HERE.parent / "src"), "HF_HUB_OFFLINE": "1"}
        ranks = [{}]
        if processes > 1:
            self.logs = [folder / f"{life}.log.{rank}" for rank in range(processes)]
            ranks = rendezvous(processes)
        self.output = open(folder / f"{life}.txt", "w")  # noqa: SIM115
        self.processes = [
            subprocess.Popen(
                command, env={**environment, **rank}, stdout=self.output, stderr=self.output
            )
            for rank in ranks
        ]

    def lines(self):
        """Returns what each process has trained on so far, whole lines only."""
        texts = [log.read_text() if log.exists() else "" for log in self.logs]
        return [text[: text.rfind("\n") + 1].split() for text in texts]

    def wait_for(self, count):
        """Waits until every process has trained on that number of batches."""
        until = time.monotonic() + TIMEOUT
        while min(map(len, self.lines())) < count:
            assert time.monotonic() < until, self.said("is too slow")
            assert all(p.poll() is None for p in self.processes), self.said("ended")
            time.sleep(0.01)

    def kill(self):
        for process in self.processes:
            process.send_signal(signal.SIGKILL)
        for process in self.processes:
            process.wait()

    def end(self):
        for process in self.processes:
            assert process.wait(TIMEOUT) == 0, self.said("failed")

    def said(self, what):
        return f"the trainer {what}: " + pathlib.Path(self.output.name).read_text()[-4000:]


def rendezvous(processes):
    """Returns what torch.distributed wants in the environment of each process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    found = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": processes}
    return [
        {key: str(v) for key, v in {**found, "RANK": rank, "LOCAL_RANK": rank}.items()}
        for rank in range(processes)
    ]


def reference(spec, dp):
    """Returns what each rank gets, from the plain client and a service of its own."""
    import torch
    import trainers

    import millrace

    with real_service(spec) as address:
        loaders = [millrace.connect(address, dp_rank=r, dp_size=dp, timeout=60) for r in range(dp)]
        found = [[] for _ in range(dp)]
        for _ in range(3 * BATCHES):
            for loader, lines in zip(loaders, found):
                batch = next(loader)
                lines.append(trainers.line_of({"input_ids": torch.from_numpy(batch["input_ids"])}))
        for loader in loaders:
            loader.close()
    assert all(len(set(lines)) == len(lines) for lines in found), "batches are not told apart"
    return found


def newest(folder, trained, each, step):
    """Returns the last complete checkpoint in the middle of a step, and how many batches it has.

    Training went on after it, so nobody was writing it when the process was killed.
    """
    counts = {int(re.search(r"\d+", path.name)[0]) * each: path for path in folder.iterdir()}
    count = max(number for number in counts if number < trained and number % step)
    return counts[count], count


def kill_and_resume(kind, folder, dp=1, each=1, options=()):
    """Kills a trainer after its second checkpoint and resumes; compares all it trained on."""
    spec = write_job(folder / "job", dp=dp, format="hf")
    want = reference(spec, dp)
    with real_service(spec) as address:
        first = Run(kind, address, folder, "first", *options, processes=dp)
        first.wait_for(6 * each + 2)
        first.kill()
        trained = first.lines()
        for lines, expected in zip(trained, want):
            assert lines == expected[: len(lines)]
        path, count = newest(folder / "saved", min(map(len, trained)), each, 8 // 2 // dp)
    # Into a fresh service, as after the loss of a machine.
    with real_service(spec) as address:
        end = count + BATCHES
        resume = ("--resume", str(path), "--batches", str(end))
        second = Run(kind, address, folder, "second", *resume, *options, processes=dp)
        second.end()
        for lines, expected in zip(second.lines(), want):
            assert lines == expected[count:end]


@pytest.mark.parametrize("kind", ["plain", "stateful", "lightning", "lightning_stateful"])
def test_killed(kind, tmp_path):
    skip_without(kind)
    kill_and_resume(kind, tmp_path)


def test_killed_with_other_precision(tmp_path):
    """Lightning rebuilds each batch of a model in bfloat16."""
    skip_without("lightning")
    kill_and_resume("lightning", tmp_path, options=("--precision", "bf16-true"))


def test_killed_trainer(tmp_path):
    skip_without("trainer")
    kill_and_resume("trainer", tmp_path, each=2)


def test_killed_accelerate_of_two(tmp_path):
    skip_without("accelerate")
    kill_and_resume("accelerate", tmp_path, dp=2)


def test_no_batch_is_lost_between_epochs(tmp_path):
    """Lightning drops what it fetched ahead when it begins another epoch."""
    skip_without("lightning")
    spec = write_job(tmp_path / "job", dp=1, format="hf")
    want = reference(spec, 1)[0]
    with real_service(spec) as address:
        run = Run("lightning", address, tmp_path, "run", "--epoch", "5", "--batches", "20")
        run.end()
        assert list(itertools.chain(*run.lines())) == want[:20]
