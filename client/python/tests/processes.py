"""Services in processes of their own: the fake one, and the real one with real files."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import pathlib
import random
import subprocess
import sys
import threading
import time

import pytest

BINARY = os.environ.get("MILLRACE_BIN", "")

needs_binary = pytest.mark.skipif(
    not BINARY, reason="set MILLRACE_BIN to the millrace binary to test against the real service"
)

SERVER = """
import sys
sys.path[:0] = {paths!r}
import fake
service = fake.Service(steps={steps})
service.topology = {topology!r}
service.start()
print(service.port, flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def service_process(steps=1 << 30, topology=""):
    """Runs the fake service in another process, as a fork wants it; yields its address."""
    here = pathlib.Path(__file__).parent
    paths = [str(here), str(here.parent / "src")]
    code = SERVER.format(paths=paths, steps=steps, topology=topology)
    options = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", code], **options) as process:
        try:
            yield f"127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()


def own_process(test):
    """Runs a test in a process of its own: one that may fork, as it never used gRPC before."""

    @functools.wraps(test)
    def run(**arguments):
        here = pathlib.Path(__file__).parent
        code = (
            f"import sys; sys.path[:0] = {[str(here), str(here.parent / 'src')]!r}\n"
            f"import {test.__module__} as tests; tests.{test.__name__}.__wrapped__(**{arguments!r})"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    return run


SPEC = """
name: {name}
seed: 7
sources:
  - name: stories
    files: stories.jsonl
    transforms: &chain
      - text: "{{text}}"
      - tokenize: bytes
      - append_eod: {{}}
  - name: notes
    files: notes.jsonl
    transforms: *chain
mix:
  stages:
    - weights: {{stories: 0.7, notes: 0.3}}
batch: {{sequence_length: 128, sequences: 8, microbatch_size: {rows}, packing: {packing}{batch}}}
topology: {{dp: {dp}, cp: {cp}, pp: {pp}, tp: {tp}}}
output: {{format: {format}, cp_slicing: {cp_slicing}}}
"""

DEFAULTS = {
    "name": "pytest", "packing": "true", "dp": 2, "cp": 1, "pp": 1, "tp": 1,
    "format": "megatron", "cp_slicing": "zigzag", "rows": 2, "batch": "",
}  # fmt: skip


def until(true, seconds=20):
    """Waits until true() is, and fails if it does not become so."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, f"it does not become true within {seconds} s"
        time.sleep(0.01)


def write_job(folder, **fields):
    """Writes a job spec with two sources of made-up text; returns the spec's path."""
    draw = random.Random(5)
    folder.mkdir(parents=True, exist_ok=True)
    for source, longest in (("stories", fields.pop("longest", 100)), ("notes", 30)):
        texts = ["x" * draw.randint(3, longest) + str(n) for n in range(400)]
        lines = [json.dumps({"text": text}) for text in texts]
        (folder / f"{source}.jsonl").write_text("\n".join(lines) + "\n")
    spec = folder / "job.yaml"
    spec.write_text(SPEC.format(**{**DEFAULTS, **fields}))
    return spec


MASKED = """
  - name: masked
    files: masked.jsonl
    transforms: [tokens: ids, loss_mask: loss]
mix:
  stages:
    - weights: {stories: 0.4, notes: 0.3, masked: 0.3}
"""


def add_masked(spec):
    """Adds a source with a loss mask to a job that write_job wrote."""
    draw = random.Random(6)
    records = [
        {"ids": [draw.randrange(256) for _ in range(n)], "loss": [draw.randrange(2)] * n}
        for n in (draw.randint(1, 200) for _ in range(300))
    ]
    for record in records:
        record["loss"][: len(record["ids"]) // 3] = [1] * (len(record["ids"]) // 3)
    lines = [json.dumps(record) for record in records]
    (spec.parent / "masked.jsonl").write_text("\n".join(lines) + "\n")
    head, tail = spec.read_text().split("mix:\n", 1)
    spec.write_text(head.rstrip() + MASKED + tail.split("}\n", 1)[1])


def _serving(process):
    """Returns the address that a service prints at first; empties the pipe from then on."""
    line = process.stdout.readline()
    assert line.startswith(("serving ", "planning ")), f"the service did not start: {line!r}"
    # Whatever it prints later must not fill the pipe.
    threading.Thread(target=process.stdout.read, daemon=True).start()
    return line.split(" on ")[1].strip()


@contextlib.contextmanager
def real_service(spec, listen="127.0.0.1:0", flags=(), before=()):
    """Runs ``millrace serve`` for a job spec, by a command if there is one; yields its address."""
    command = [*before, BINARY, "serve", str(spec), "--listen", listen, *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield _serving(process)
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()


def status(address):
    """Returns what ``millrace status`` says of a service."""
    command = [BINARY, "status", address]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


class Roles:
    """A planner, a loader and a constructor, each a process of its own."""

    def __init__(self, spec, address="127.0.0.1:0"):
        self.spec = spec
        self.processes = [self._planner(address)]
        self.address = _serving(self.processes[0])
        for role in ("loader", "constructor"):
            self.processes.append(self._start([role, "--planner", self.address]))

    def wait(self):
        """Waits until all roles are there: on a busy machine that takes seconds."""
        until(lambda: "the first trainer to join" in status(self.address), 60)

    @staticmethod
    def _start(arguments):
        return subprocess.Popen([BINARY, *arguments], stdout=subprocess.PIPE, text=True)

    def _planner(self, address):
        log = self.spec.parent / "log"
        return self._start(["planner", str(self.spec), "--listen", address, "--log-dir", str(log)])

    def restart_planner(self):
        """Kills the planner, and starts it again at the same address; the other roles live on."""
        self.processes[0].kill()
        self.processes[0].wait(30)
        self.processes[0].stdout.close()
        self.processes[0] = self._planner(self.address)
        _serving(self.processes[0])

    def stop(self):
        for process in self.processes:
            process.kill()
            process.wait()
            process.stdout.close()
