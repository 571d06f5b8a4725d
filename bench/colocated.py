"""Memory of data-loader workers that each open every source.

Reads a JSON list of {"path", "column"} from stdin; takes worker counts as
arguments. For each count n it forks n workers from one parent, as PyTorch's
DataLoader does. A worker opens all files with pyarrow and keeps, for each, the
open file and an iterator that has given its first batch of the one column.
Prints one JSON line for each count: PSS, RSS and private memory of all workers
together, in MiB, read when all are ready. The parent is not counted.

torch is imported in the parent, before the fork, if it is installed: its pages
are shared and so cost the workers next to nothing.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

import pyarrow
import pyarrow.parquet as pq

versions = [f"Python {sys.version.split()[0]}", f"pyarrow {pyarrow.__version__}"]
try:
    import torch

    versions.append(f"torch {torch.__version__} imported before the fork")
except ImportError:
    versions.append("no torch")

# Rows of a batch that a worker decodes at a time, kept small in its favour.
BATCH_ROWS = 1024


def open_all(sources: list[dict[str, str]]) -> list[Any]:
    held: list[Any] = []
    for source in sources:
        try:
            file = pq.ParquetFile(source["path"], memory_map=False)
            batches = file.iter_batches(BATCH_ROWS, columns=[source["column"]], use_threads=False)
            held.append((file, batches, next(batches)))
        except Exception:  # a file that pyarrow cannot read counts for nothing
            continue
    return held


def worker(sources: list[dict[str, str]], ready: int) -> None:
    held = open_all(sources)
    os.write(ready, len(held).to_bytes(4, "little"))
    signal.pause()


def memory(pid: int) -> tuple[float, float, float]:
    """Returns PSS, RSS and private memory of a process in MiB."""
    fields: dict[str, float] = {}
    with open(f"/proc/{pid}/smaps_rollup") as rollup:
        for line in rollup:
            name, _, rest = line.partition(":")
            if rest.strip().endswith("kB"):
                fields[name] = int(rest.split()[0]) / 1024
    return fields["Pss"], fields["Rss"], fields["Private_Clean"] + fields["Private_Dirty"]


def measure(sources: list[dict[str, str]], workers: int) -> dict[str, Any]:
    pids: list[int] = []
    opened: list[int] = []
    try:
        for _ in range(workers):
            out, into = os.pipe()
            pid = os.fork()
            if pid == 0:
                try:
                    worker(sources, into)
                finally:
                    os._exit(1)
            os.close(into)
            pids.append(pid)
            opened.append(out)
        files = {int.from_bytes(os.read(out, 4), "little") for out in opened}
        pss, rss, private = (sum(kind) for kind in zip(*map(memory, pids)))
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGTERM)
            os.waitpid(pid, 0)
        for out in opened:
            os.close(out)
    return {
        "workers": workers,
        "pss_mib": pss,
        "rss_mib": rss,
        "private_mib": private,
        "files": min(files),
        "versions": versions,
    }


def main() -> None:
    sources = json.load(sys.stdin)
    for workers in map(int, sys.argv[1:]):
        print(json.dumps(measure(sources, workers)), flush=True)


if __name__ == "__main__":
    main()
