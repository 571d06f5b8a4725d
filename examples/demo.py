"""The main job: a service of real processes feeds eight trainer ranks.

    make demo

It starts `millrace serve --processes`, then one Python process for each of the
job's ranks (dp 2 x cp 2 x pp 2), which take their batches through the installed
client. Afterwards three parties have to agree on one digest: the service, the
Python ranks (from the tensors they received), and the reference reader, which
computes the batches from the job spec alone.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
AXES = ("dp", "cp", "pp")
SIZES = {"dp": 2, "cp": 2, "pp": 2}


def environment() -> dict[str, str]:
    """The environment of all processes: the paths of Go's tree and the shared data."""
    env = dict(os.environ)
    if "GOROOT" not in env:
        env["GOROOT"] = subprocess.check_output(["go", "env", "GOROOT"], text=True).strip()
    data = HERE.parent.parent / "shared" / "data"
    if "MILLRACE_DATA" not in env and data.is_dir():
        env["MILLRACE_DATA"] = str(data)
    return env


class Rank(threading.Thread):
    """One trainer rank in its own process."""

    def __init__(self, place: dict[str, int], address: str, steps: int, folder: pathlib.Path):
        super().__init__(daemon=True)
        self.name = " ".join(f"{axis}={n}" for axis, n in place.items())
        self.file = folder / (self.name.replace(" ", "_") + ".json")
        command = [sys.executable, "-m", "millrace.rank", "--address", address]
        command += [f"--{axis}-rank={n}" for axis, n in place.items()]
        command += [f"--{axis}-size={n}" for axis, n in SIZES.items()]
        command += [f"--steps={steps}", f"--json={self.file}", f"--dump={folder / 'dump'}"]
        self.steps = 0
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.start()

    def run(self) -> None:
        for _ in self.process.stdout:
            self.steps += 1

    def summary(self) -> dict:
        return json.loads(self.file.read_text())


def serve(millrace: str, spec: pathlib.Path, env: dict[str, str]) -> tuple[subprocess.Popen, str]:
    """Starts the service and returns its address."""
    command = [millrace, "serve", str(spec), "--processes", "--loaders=2", "--constructors=2"]
    command += ["--listen=127.0.0.1:0", "--log-level=error"]
    service = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)
    line = service.stdout.readline().strip()
    if " on " not in line:
        sys.exit(f"the service did not start (exit status {service.wait()})")
    print(line)
    return service, line.rpartition(" on ")[2]


def watch(ranks: list[Rank], steps: int) -> None:
    """Shows the ranks' progress until all have ended."""
    live = sys.stdout.isatty()
    while any(rank.process.poll() is None for rank in ranks):
        if live:
            done = " ".join(f"{rank.steps:>4}" for rank in ranks)
            print(f"\r\x1b[Ksteps done by each rank, of {steps}: {done}", end="", flush=True)
        time.sleep(0.1)
    if live:
        print("\r\x1b[K", end="")
    for rank in ranks:
        rank.join()
        if rank.process.returncode:
            sys.exit(f"rank {rank.name} ended with exit status {rank.process.returncode}")


def show(ranks: list[Rank], status: dict, seconds: float) -> None:
    """Prints a summary of a run."""
    summaries = [rank.summary() for rank in ranks]
    # Every rank of a data-parallel group sees the same documents: count one of each.
    firsts = [s for r, s in zip(ranks, summaries) if "cp=0 pp=0" in r.name]
    tokens = sum(step["tokens"] for s in firsts for step in s["steps"])
    count = len(summaries[0]["steps"])
    print(f"{len(ranks)} ranks, {count} steps, {tokens:,} tokens in {seconds:.1f} s\n")
    print(f"  {'rank':<16}{'MiB':>8}{'waited s':>10}")
    for rank, s in zip(ranks, summaries):
        print(f"  {rank.name:<16}{s['bytes'] / 2**20:>8.1f}{s['wait_seconds']:>10.2f}")
    print(f"\n  {'source':<16}{'files':>7}{'tokens':>12}{'share':>9}{'lag':>8}{'epoch':>7}")
    for s in status["sources"]:
        print(
            f"  {s['name']:<16}{s['files']:>7}{s['tokens']:>12,}{s['realised_share']:>9.2%}"
            f"{s['lag']:>8.0f}{s['epoch']:>7}"
        )
    print(f"\n  rows {status['fill']:.2%} full in the last plan; lag: tokens behind the schedule\n")


def last_line(command: list[str], env: dict[str, str]) -> str:
    return subprocess.check_output(command, env=env, text=True).strip().splitlines()[-1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--millrace", default="bin/millrace", help="the millrace binary")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--job", help="job spec; default: the demo's, or the quickstart's")
    options = parser.parse_args()
    env = environment()
    has_data = "MILLRACE_DATA" in env
    spec = pathlib.Path(options.job or HERE / ("demo.yaml" if has_data else "quickstart.yaml"))
    with tempfile.TemporaryDirectory(prefix="millrace-demo-") as name:
        folder = pathlib.Path(name)
        service, address = serve(options.millrace, spec, env)
        try:
            began = time.monotonic()
            places = [
                dict(zip(AXES, p)) for p in itertools.product(*(range(SIZES[a]) for a in AXES))
            ]
            ranks = [Rank(place, address, options.steps, folder) for place in places]
            watch(ranks, options.steps)
            seconds = time.monotonic() - began
            status = json.loads(
                subprocess.check_output([options.millrace, "status", address, "--json"], text=True)
            )
        finally:
            service.terminate()
            service.wait()
        show(ranks, status, seconds)
        received = last_line([sys.executable, "-m", "millrace.digest", str(folder / "dump")], env)
        reference = last_line(
            [options.millrace, "reference", str(spec), f"--steps={options.steps}"], env
        )
    print(f"what the ranks received:  {received}\nwhat the reference says:  {reference}")
    if received != reference:
        print("they DIFFER: the ranks did not receive what the job defines")
        return 1
    print("they are equal: every token of every rank is the one the job defines")
    return 0


if __name__ == "__main__":
    sys.exit(main())
