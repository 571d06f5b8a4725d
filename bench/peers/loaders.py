"""Gives the same rows to Python trainers by Millrace and by what they would use instead, and prints a table.

    python bench/peers/loaders.py --millrace bin/millrace [--data $MILLRACE_DATA] [--markdown FILE]

Run by `make bench-peers`. Two ranks (dp 2), tokenized rows of 4,096, at several numbers of rows a step. CPU seconds and
memory (PSS) are those of all processes of a contender, the service's among them, from /proc (Linux). Before anything is
measured, the rows of a whole epoch are compared: each peer has to give each row once. A peer that is not installed is
left out, with a message. With --data the same is measured from JSON lines with cl100k_base.
"""

# ruff: noqa: E501 - rows of tables, and specs

from __future__ import annotations

import argparse
import collections
import contextlib
import hashlib
import importlib.util
import json
import os
import platform
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from typing import Any

import measure
import rows
import trainer

RANKS = 2
NAMES = {
    "millrace": "Millrace",
    "torch": "PyTorch DataLoader, pyarrow",
    "mosaic": "MosaicML Streaming",
    "litdata": "LitData",
    "grain": "Grain",
    "torch-text": "PyTorch DataLoader, tiktoken",
    "grain-text": "Grain, tiktoken",
}
NEEDS = {
    "torch": "torch",
    "mosaic": "streaming",
    "litdata": "litdata",
    "grain": "grain",
    "torch-text": "torch",
    "grain-text": "grain",
}


@dataclass
class Taken:
    """What a contender took."""

    name: str
    rows: int  # of a step
    tokens: int
    cpu: float
    seconds: float
    pss: int
    waits: list[float] = field(default_factory=list)  # of all ranks

    def share(self) -> float:
        """The share of time that ranks waited."""
        return sum(self.waits) / RANKS / self.seconds

    def at(self, quantile: float) -> float:
        """A quantile of the waits."""
        return sorted(self.waits)[min(int(quantile * len(self.waits)), len(self.waits) - 1)]


class Service:
    """`millrace serve` of one job, in one process."""

    def __init__(self, program: str, spec: str) -> None:
        command = [program, "serve", spec, "--listen=127.0.0.1:0", "--log-level=error"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout
        line = self.process.stdout.readline().strip()
        if " on " not in line:
            raise SystemExit(f"the service did not start: {line}")
        self.program, self.address = program, line.rpartition(" on ")[2]

    def fill(self) -> float:
        """Tokens in the last step, of the room in it."""
        status = [self.program, "status", self.address, "--json"]
        return float(json.loads(subprocess.check_output(status, text=True))["fill"])

    def stop(self) -> None:
        self.process.terminate()
        self.process.communicate()


def spec_of(folder: str, source: str, step: int) -> str:
    """Writes the job of a number of rows a step."""
    path = os.path.join(folder, f"job-{step}.yaml")
    with open(path, "w") as file:
        file.write(
            f"name: peers\nseed: 1\nsources:\n  - {source}\n"
            f"batch: {{sequence_length: {trainer.LENGTH}, sequences: {step}, microbatch_size: {step // RANKS}}}\ntopology: {{dp: {RANKS}}}\n"
        )
    return path


def start(peer: str, of: dict[str, Any]) -> list[subprocess.Popen[bytes]]:
    """Starts the ranks of a peer."""
    script = os.path.join(measure.HERE, "trainer.py")
    with socket.socket() as free:  # where torch.distributed of MosaicML's ranks meets
        free.bind(("127.0.0.1", 0))
        of = of | {"port": free.getsockname()[1]}
    return [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", script, json.dumps(of | {"peer": peer, "rank": rank})],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=measure.HERE,
            env=of["env"],
            start_new_session=True,
        )
        for rank in range(RANKS)
    ]


def result(rank: subprocess.Popen[bytes]) -> Any:
    """Returns what a rank says at its end, and ends what it left: Grain's workers outlive their rank."""
    assert rank.stdout
    found = next((line for line in rank.stdout if line[:1] in b"[{"), None)
    if found is None:
        raise ChildProcessError(f"a rank ended with {rank.wait()}, see above")
    with contextlib.suppress(subprocess.TimeoutExpired):
        rank.wait(10)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(rank.pid, signal.SIGKILL)
    rank.wait()
    return json.loads(found)


def release(ranks: list[subprocess.Popen[bytes]]) -> None:
    for rank in ranks:
        assert rank.stdin
        rank.stdin.write(b".")
        rank.stdin.flush()


def measured(peer: str, name: str, of: dict[str, Any], step: int, service: Service | None) -> Taken:
    """Runs the ranks of a peer once."""
    ranks = start(peer, of | {"check": False})
    roots = [rank.pid for rank in ranks] + ([service.process.pid] if service else [])
    for rank in ranks:
        measure.expect(rank, name, b"mark begin")
    before, begun = sum(map(measure.cpu, roots)), time.perf_counter()
    memories = [measure.Memory(root) for root in roots]
    release(ranks)
    for rank in ranks:
        measure.expect(rank, name, b"mark end")
    seconds, spent = time.perf_counter() - begun, sum(map(measure.cpu, roots)) - before
    peak = sum(memory.end() for memory in memories)
    release(ranks)
    waits = [wait for rank in ranks for wait in result(rank)]
    tokens = of["steps"] * step * trainer.LENGTH
    if service:
        tokens = int(tokens * service.fill())
    return Taken(name, step, tokens, spent, seconds, peak, waits)


def check(peer: str, of: dict[str, Any], whole: int, want: collections.Counter[str]) -> None:
    """Compares the rows of an epoch."""
    ranks = start(peer, of | {"check": True, "steps": whole // RANKS // of["batch"]})
    got: collections.Counter[str] = collections.Counter()
    for rank in ranks:
        got.update(result(rank))
    if got != want:
        missing, more = sum((want - got).values()), sum((got - want).values())
        raise SystemExit(
            f"{NAMES[peer]}: of {whole} rows {missing} are missing, and {more} are others, or come twice"
        )


class Bench:
    """All contenders over one folder of inputs."""

    def __init__(self, args: argparse.Namespace, folder: str) -> None:
        self.args, self.folder, self.taken = args, folder, list[Taken]()
        self.of: dict[str, Any] = {
            "ranks": RANKS, "epochs": 1000, "ahead": 2, "way": None, "address": None, "pace": 0.0,
            "env": os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": measure.HERE},
        }  # fmt: skip
        self.peers = ["millrace"]

    def write(self) -> None:
        """Writes the inputs of all peers that are installed."""
        tokens = rows.tokens_of(self.args.rows)
        self.want = collections.Counter(trainer.hash_rows(tokens))
        self.of["parquet"] = rows.write_parquet(tokens, f"{self.folder}/parquet")
        for peer, write, path in (
            ("torch", None, ""),
            ("mosaic", rows.write_mosaic, f"{self.folder}/mds"),
            ("litdata", rows.write_lit, f"{self.folder}/lit"),
            ("grain", rows.write_grain, f"{self.folder}/rows.npy"),
        ):
            if importlib.util.find_spec(NEEDS[peer]) is None:
                print(f"{NAMES[peer]} is left out: {sys.executable} has no {NEEDS[peer]}")
                continue
            try:
                if write:
                    write(tokens, path)
            except Exception as error:
                print(f"{NAMES[peer]} is left out: it does not run here: {error!r}")
                continue
            self.peers.append(peer)
        self.of |= {
            "mds": f"{self.folder}/mds",
            "lit": f"{self.folder}/lit",
            "npy": f"{self.folder}/rows.npy",
        }

    def run(self, peer: str, step: int, name: str, source: str, **of: Any) -> Taken:
        """Measures a peer once, with a service of its own if it is Millrace."""
        of = self.of | of | {"batch": step // RANKS}
        if peer != "millrace":
            return measured(peer, name, of, step, None)
        service = Service(self.args.millrace, spec_of(self.folder, source, step))
        try:
            return measured(peer, name, of | {"address": service.address}, step, service)
        finally:
            service.stop()

    def compare(self) -> None:
        """Compares the rows of an epoch of each peer, and leaves out who cannot be started."""
        source = self.source()
        for peer in list(self.peers):
            of = self.of | {"batch": 8, "epochs": 1}
            if peer != "millrace":
                try:
                    check(peer, of, self.args.rows, self.want)
                except ChildProcessError as error:
                    print(f"{NAMES[peer]} is left out: it does not run here: {error}")
                    self.peers.remove(peer)
                continue
            service = Service(self.args.millrace, spec_of(self.folder, source, 16))
            try:
                check(peer, of | {"address": service.address}, self.args.rows, self.want)
            finally:
                service.stop()

    def source(self) -> str:
        return f"{{name: rows, files: {json.dumps(self.folder + '/parquet/*.parquet')}, transforms: [{{tokens: tokens}}]}}"

    def contenders(self) -> list[tuple[str, str, str | None]]:
        """Peers, names and ways: Millrace once for each way."""
        ours = [("millrace", f"Millrace, {way}", way) for way in self.args.ways.split(",")]
        return ours + [(peer, NAMES[peer], None) for peer in self.peers[1:]]

    def measure_rows(self) -> None:
        """As fast as they come, and at a pace."""
        for step in self.args.steps:
            whole = self.args.rows // step
            for _ in range(self.args.rounds):
                for peer, name, way in self.contenders():
                    taken = self.run(
                        peer,
                        step,
                        name,
                        self.source(),
                        way=way,
                        warm=whole // 4,
                        steps=whole - whole // 4,
                    )
                    self.taken.append(taken)
                    print(line(taken), flush=True)
        for pace in self.args.paces:
            for peer, name, way in self.contenders():
                steps = max(int(self.args.paced / pace), 20)
                taken = self.run(
                    peer,
                    16,
                    f"{name}, {pace * 1000:.0f} ms a step",
                    self.source(),
                    way=way,
                    warm=20,
                    steps=steps,
                    pace=pace,
                )
                self.taken.append(taken)
                print(line(taken), flush=True)

    def measure_text(self) -> None:
        """From JSON lines, with cl100k_base."""
        ranks = f"{self.args.data}/tokenizers/tiktoken/cl100k_base.tiktoken"
        cache = os.path.join(self.folder, "encodings")
        os.makedirs(cache)
        shutil.copy(ranks, os.path.join(cache, hashlib.sha1(measure.RANKS.encode()).hexdigest()))
        os.makedirs(f"{self.folder}/text")
        self.of["jsonl"] = measure.write_documents(
            self.args.data, f"{self.folder}/text", self.args.megabytes
        )
        self.of["env"] |= {"TIKTOKEN_CACHE_DIR": cache}
        source = (
            f"{{name: text, files: {json.dumps(self.folder + '/text/*.jsonl')}, "
            f"transforms: [{{tokenize: {{encoding: cl100k_base, ranks: {json.dumps(ranks)}}}}}, {{append_eod: {{}}}}]}}"
        )
        peers = [("millrace", "Millrace, text", way) for way in self.args.ways.split(",")[:1]]
        peers += [
            (p, NAMES[p], None)
            for p in ("torch-text", "grain-text")
            if p.partition("-")[0] in self.peers
        ]
        for peer, name, way in peers:
            taken = self.run(peer, 16, name, source, way=way, warm=20, steps=self.args.text_steps)
            self.taken.append(taken)
            print(line(taken), flush=True)


HEADER = (
    "| | rows a step | CPU s per M tokens | M tokens/s | PSS, MiB | ranks waited | p50, p99.9 of next(), ms |\n"
    "|---|--:|--:|--:|--:|--:|--:|"
)


def line(t: Taken) -> str:
    return (
        f"| {t.name} | {t.rows} | {t.cpu / t.tokens * 1e6:.4f} | {t.tokens / 1e6 / t.seconds:.2f} | {t.pss / 2**20:.0f} "
        f"| {100 * t.share():.2f} % | {1000 * t.at(0.5):.2f}, {1000 * t.at(0.999):.2f} |"
    )


def main() -> None:
    parse = argparse.ArgumentParser()
    parse.add_argument("--millrace", required=True)
    parse.add_argument("--data", help="the folder of real data; without it no text is measured")
    parse.add_argument("--rows", type=int, default=32768, help="rows of the data set")
    parse.add_argument("--steps", type=int, nargs="*", default=[16, 128], help="rows a step")
    parse.add_argument("--rounds", type=int, default=2)
    parse.add_argument("--paces", type=float, nargs="*", default=[0.05, 0.1], help="seconds a step")
    parse.add_argument("--paced", type=float, default=20, help="seconds of a paced run")
    parse.add_argument("--ways", default="stream", help="of Millrace's delivery, by commas")
    parse.add_argument("--megabytes", type=int, default=40)
    parse.add_argument("--text-steps", type=int, default=100)
    parse.add_argument("--markdown")
    args = parse.parse_args()
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(args, folder)
        bench.write()
        bench.compare()
        print(HEADER)
        bench.measure_rows()
        if args.data:
            bench.measure_text()
    about = ", ".join(
        measure.version(p)
        for p in ("torch", "mosaicml-streaming", "litdata", "grain", "pyarrow", "tiktoken")
    )
    text = "\n".join(
        [f"{args.rows} rows of {trainer.LENGTH}, {RANKS} ranks, {os.cpu_count()} cores of a {platform.machine()} with load {load:.1f} at the beginning; Python {platform.python_version()}, {about}", "", HEADER]
        + [line(t) for t in bench.taken]
    )  # fmt: skip
    if args.markdown:
        with open(args.markdown, "w") as file:
            file.write(text + "\n")


if __name__ == "__main__":
    main()
