"""Prepares the same documents with Millrace, Ray Data and PyTorch's DataLoader, and prints a table.

    python bench/peers/measure.py --millrace bin/millrace --data $MILLRACE_DATA [--megabytes 100] [--markdown FILE]

Run by `make bench-ray`. CPU time and memory are those of all processes of a contender, from /proc (Linux): user and
system time of the phase, and the peak of the sum of their proportional set sizes, looked at every half second. Ray Data
and DataLoader are warmed up: what they start, import and load does not count. Millrace counts from its start.
"""

# ruff: noqa: E501 - rows of tables, and specs

import argparse
import glob
import hashlib
import importlib.metadata
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

HERE = os.path.dirname(os.path.abspath(__file__))
SETS = ["c4-rp", "github", "stackexchange", "wiki", "arxiv", "book"]
RANKS = "https://openaipublic.blob.core.windows.net/encodings/cl100k_base.tiktoken"
FILES = 8
TICK = os.sysconf("SC_CLK_TCK")
EVERY = 0.5  # seconds between two looks at the memory


@dataclass
class Phase:
    """What a contender took."""

    name: str
    seconds: float
    cpu: float
    peak: int
    rows: int
    tokens: int
    digest: str


def tree(root: int) -> list[int]:
    """A process and its descendants."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (fields := stat(int(entry))):
            children.setdefault(int(fields[1]), []).append(int(entry))
    found = [root]
    for pid in found:
        found.extend(children.get(pid, []))
    return found


def stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the state on; none if the process is gone."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(") ")[2].split()
    except OSError:
        return []


def cpu(root: int) -> float:
    """Seconds of a process, its descendants, and those of them that ended and were waited for."""
    fields = [stat(pid) for pid in tree(root)]
    return sum(int(n) for f in fields if f for n in f[11:15]) / TICK


def pss(root: int) -> int:
    """Bytes of a process and its descendants; a page that several have counts once."""
    total = 0
    for pid in tree(root):
        try:
            with open(f"/proc/{pid}/smaps_rollup") as file:
                for line in file:
                    if line.startswith("Pss:"):
                        total += int(line.split()[1]) << 10
        except OSError:
            continue
    return total


class Memory:
    """Looks at the memory of a tree of processes now and then."""

    def __init__(self, root: int) -> None:
        self.root, self.peak, self.over = root, 0, threading.Event()
        self.thread = threading.Thread(target=self.watch)
        self.thread.start()

    def watch(self) -> None:
        while not self.over.is_set():
            self.peak = max(self.peak, pss(self.root))
            self.over.wait(EVERY)

    def end(self) -> int:
        self.over.set()
        self.thread.join()
        return self.peak


def write_documents(data: str, folder: str, megabytes: int) -> list[str]:
    """Writes the real documents of the shared data, repeated, as FILES files of JSON lines."""
    texts: list[str] = []
    for name in SETS:
        with open(f"{data}/text/redpajama-sample/{name}.jsonl", encoding="utf-8") as lines:
            texts += [text for line in lines if (text := json.loads(line).get("text"))]
    paths, n = [], 0
    for i in range(FILES):
        path = os.path.join(folder, f"{i}.jsonl")
        with open(path, "w", encoding="utf-8") as file:
            while file.tell() < megabytes * 1_000_000 // FILES:
                for _ in range(20):
                    file.write(
                        json.dumps({"id": n, "text": texts[n % len(texts)]}, ensure_ascii=False)
                        + "\n"
                    )
                    n += 1
        paths.append(path)
    return paths


def digest(folder: str) -> tuple[int, int, str]:
    """Rows, tokens, and a digest of the documents of a folder of Parquet files, whatever their order."""
    rows, tokens, sums = 0, 0, []
    for path in sorted(glob.glob(f"{folder}/**/*.parquet", recursive=True)):
        for batch in pq.ParquetFile(path).iter_batches(4096, columns=["tokens"]):
            column = batch.column(0)
            offsets, values = column.offsets.to_numpy(), column.values.cast(pa.int32()).to_numpy()
            rows += len(column)
            tokens += int(offsets[-1] - offsets[0])
            sums += [
                hashlib.sha256(values[a:b].tobytes()).digest()
                for a, b in zip(offsets[:-1], offsets[1:])
            ]
    whole = hashlib.sha256()
    for one in sorted(sums):
        whole.update(one)
    return rows, tokens, whole.hexdigest()


def millrace(program: str, files: list[str], ranks: str, cores: int, out: str) -> Phase:
    folder = os.path.dirname(files[0])
    spec = os.path.join(folder, "job.yaml")
    with open(spec, "w") as file:
        file.write(
            f"name: peers\nsources:\n  - name: web\n    files: {json.dumps(folder + '/*.jsonl')}\n    transforms:\n      - filter: len(text) > 200\n"
            f"      - tokenize: {{encoding: cl100k_base, ranks: {json.dumps(ranks)}}}\n      - append_eod: {{}}\nbatch: {{sequence_length: 4096, sequences: 4}}\n"
        )
    began = time.perf_counter()
    process = subprocess.Popen(
        [program, "prepare", spec, "--out", out, "--workers", str(cores)],
        stdout=subprocess.DEVNULL,
        env=os.environ | {"GOMAXPROCS": str(cores)},
    )
    memory = Memory(process.pid)
    _, status, usage = os.wait4(process.pid, 0)
    took, peak = time.perf_counter() - began, memory.end()
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"millrace prepare ended with {process.returncode}")
    return Phase(
        "Millrace, `prepare`",
        took,
        usage.ru_utime + usage.ru_stime,
        max(peak, usage.ru_maxrss << 10),
        *digest(out),
    )


def peer(name: str, python: str, script: list[str], out: str) -> Phase:
    process = subprocess.Popen(
        [python, *script],
        cwd=HERE,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdin and process.stdout
    expect(process, name, b"mark begin")
    before, began = cpu(process.pid), time.perf_counter()
    memory = Memory(process.pid)
    process.stdin.write(b".")
    process.stdin.flush()
    expect(process, name, b"mark end")
    took, spent, peak = time.perf_counter() - began, cpu(process.pid) - before, memory.end()
    process.stdin.write(b".")
    process.stdin.flush()
    process.communicate()
    return Phase(name, took, spent, peak, *digest(out))


def expect(process: subprocess.Popen[bytes], name: str, word: bytes) -> None:
    assert process.stdout
    for line in process.stdout:
        if line.strip() == word:
            return
    raise SystemExit(f"{name} ended with {process.wait()} before it said {word.decode()!r}")


def nothing(cores: int) -> str:
    """Rows a second of a Python function that does nothing."""
    ran = subprocess.run(
        [sys.executable, "ray_data.py", "nothing", str(cores), str(16 << 20), "-"],
        cwd=HERE,
        capture_output=True,
        text=True,
    )
    rays = {
        int(batch): float(rate)
        for batch, rate in re.findall(r"^rows (\d+) (\S+)", ran.stdout, re.M)
    }
    ran = subprocess.run(
        ["go", "test", "-run", "^$", "-bench", "Nothing/(64KB|4MB)-integers/many", "-benchtime", "2s", "./internal/worker"],
        cwd=os.path.dirname(os.path.dirname(HERE)), capture_output=True, text=True, env=os.environ | {"MILLRACE_PYTHON": sys.executable},
    )  # fmt: skip
    ours = {
        size: float(rate)
        for size, rate in re.findall(
            r"^BenchmarkNothing/(\w+)-integers/many\S*.*?(\S+) rows/s", ran.stdout, re.M
        )
    }
    lines = [
        "| a Python function that does nothing, batches of int64, rows/s | 64 KB | 4 MB |",
        "|---|--:|--:|",
    ]
    if len(rays) == 2 and len(ours) == 2:
        a, b = (ours["64KB"], ours["4MB"]), (rays[8 << 10], rays[512 << 10])
        lines.append(
            "| Millrace, a `map_batches` function in workers | "
            + " | ".join(f"{x / 1e6:.1f} M" for x in a)
            + " |"
        )
        lines.append(
            "| Ray Data, `map_batches` over a materialized dataset | "
            + " | ".join(f"{x / 1e6:.1f} M" for x in b)
            + " |"
        )
        lines.append(
            "| Millrace / Ray Data | " + " | ".join(f"{x / y:.1f}" for x, y in zip(a, b)) + " |"
        )
    else:
        lines.append(f"not measured: {ran.stdout[-300:]} {ran.stderr[-300:]}")
    return "\n".join(lines)


def torch_of(python: str) -> str:
    """The version of torch that an interpreter has, if it has all that torch_loader.py needs; else nothing."""
    ran = subprocess.run(
        [python, "-W", "ignore", "-c", "import torch, tiktoken, pyarrow; print(torch.__version__)"],
        capture_output=True,
        text=True,
    )
    return ran.stdout.strip()


def version(package: str) -> str:
    try:
        return f"{package} {importlib.metadata.version(package)}"
    except importlib.metadata.PackageNotFoundError:
        return f"no {package}"


def report(phases: list[Phase], size: int, cores: int) -> str:
    first = phases[0]
    lines = [
        f"{size / 1e6:.0f} MB of JSON lines in {FILES} files, {cores} cores of a {platform.machine()} with load {os.getloadavg()[0]:.1f}; Python {platform.python_version()}, "
        + ", ".join(version(p) for p in ("ray", "tiktoken", "pyarrow")),
        "",
        "| JSONL, filter, cl100k_base, Parquet | CPU s | MB/CPU s | MB/s | rows/s | peak PSS, MiB | of Millrace: MB/CPU s, memory | same tokens |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for p in phases:
        lines.append(
            f"| {p.name} | {p.cpu:.1f} | {size / 1e6 / p.cpu:.2f} | {size / 1e6 / p.seconds:.1f} | {p.rows / p.seconds:.0f} | {p.peak / 2**20:.0f} "
            f"| {first.cpu / p.cpu:.3f}, {p.peak / first.peak:.1f} | {'yes' if p.digest == first.digest else 'NO'}: {p.rows} rows, {p.tokens} tokens |"
        )
    return "\n".join(lines)


def main() -> None:
    parse = argparse.ArgumentParser()
    parse.add_argument("--millrace", required=True)
    parse.add_argument("--data", required=True)
    parse.add_argument("--megabytes", type=int, default=100)
    parse.add_argument("--cores", type=int, default=len(os.sched_getaffinity(0)))
    parse.add_argument(
        "--torch-python",
        default=sys.executable,
        help="an interpreter with torch, tiktoken and pyarrow",
    )
    parse.add_argument("--markdown")
    args = parse.parse_args()
    with tempfile.TemporaryDirectory() as dir:
        ranks = f"{args.data}/tokenizers/tiktoken/cl100k_base.tiktoken"
        cache = os.path.join(dir, "encodings")
        os.makedirs(cache)
        shutil.copy(ranks, os.path.join(cache, hashlib.sha1(RANKS.encode()).hexdigest()))
        os.environ["TIKTOKEN_CACHE_DIR"] = cache
        os.environ["PYTHONPATH"] = HERE
        files = write_documents(args.data, dir, args.megabytes)
        size, cores = sum(map(os.path.getsize, files)), args.cores
        phases = [millrace(args.millrace, files, ranks, cores, f"{dir}/millrace")]
        for what, name in (
            ("batches", "Ray Data, `map_batches` of Arrow tables"),
            ("rows", "Ray Data, `filter` and `map` of rows"),
        ):
            phases.append(
                peer(
                    name,
                    sys.executable,
                    ["ray_data.py", what, str(cores), ",".join(files), f"{dir}/{what}"],
                    f"{dir}/{what}",
                )
            )
        torch = torch_of(args.torch_python)
        if torch:
            name = f"DataLoader of torch {torch}, {cores} workers"
            phases.append(
                peer(
                    name,
                    args.torch_python,
                    ["torch_loader.py", str(cores), ",".join(files), f"{dir}/torch"],
                    f"{dir}/torch",
                )
            )
        else:
            print(
                "PyTorch's DataLoader is not measured: --torch-python has no torch, tiktoken and pyarrow"
            )
        text = report(phases, size, cores) + "\n\n" + nothing(cores) + "\n"
    print(text)
    if args.markdown:
        with open(args.markdown, "w") as file:
            file.write(text)
    if any(p.digest != phases[0].digest for p in phases):
        raise SystemExit("the tokens are not the same")


if __name__ == "__main__":
    main()
