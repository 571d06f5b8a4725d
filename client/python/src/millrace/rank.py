"""``python -m millrace.rank``: one rank that consumes batches and reports what it got.

A trainer without the training, for demos and checks. It prints a line per step
and can write a JSON summary, its state, and a dump of all it received.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import pathlib
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from millrace import dump
from millrace.config import AXES, BEGINNING
from millrace.connect import connect
from millrace.errors import BugError, Error, LostError, TopologyChanged
from millrace.loader import Loader
from millrace.state import from_json, to_json


def parser() -> argparse.ArgumentParser:
    """Returns the command line."""
    made = argparse.ArgumentParser(
        prog="python -m millrace.rank",
        description="Consumes the batches of one rank.",
        epilog="Exit status: 0 success, 1 bug, 2 usage, 3 error in spec or data, 4 service lost.",
    )
    made.add_argument("--address", help="host:port of the planner; default $MILLRACE_ADDR")
    made.add_argument("--job", help="fail if the service serves another job")
    made.add_argument("--identity", help="fail if the service runs another spec (hexadecimal)")
    for axis in AXES:
        made.add_argument(f"--{axis}-rank", type=int, metavar="N")
        made.add_argument(f"--{axis}-size", type=int, metavar="N")
    made.add_argument(
        "--steps", type=int, metavar="N", help="stop after N steps; default: at the end of the data"
    )
    made.add_argument(
        "--compute", type=float, default=0.0, metavar="SEC", help="simulated compute time of a step"
    )
    made.add_argument("--prefetch", type=int, default=2, metavar="N", help="steps read ahead")
    made.add_argument("--timeout", type=float, default=600.0, metavar="SEC")
    made.add_argument("--stall-timeout", type=float, default=40.0, metavar="SEC")
    made.add_argument("--start", choices=[BEGINNING], help="restart the job at its first step")
    made.add_argument("--load", metavar="FILE", help="resume after the state in FILE")
    made.add_argument("--save", metavar="FILE", help="write the state to FILE at the end")
    made.add_argument(
        "--save-every", type=int, default=0, metavar="N", help="write the state every N steps, too"
    )
    made.add_argument("--json", metavar="FILE", help="write a summary to FILE at the end")
    made.add_argument("--dump", metavar="DIR", help="write all tensors below DIR")
    for name in ("ca", "cert", "key"):
        made.add_argument(f"--tls-{name}", metavar="PEM")
    made.add_argument("--access-key-file", metavar="FILE")
    return made


class Report:
    """What was received, step by step."""

    def __init__(self, place: dict[str, Any]) -> None:
        self.place = place
        self.steps: list[dict[str, Any]] = []
        self.topology: dict[str, int] | None = None  # of the mesh that goes on from here
        self._hash = hashlib.sha256()
        self._tokens = 0
        self._seen = (0.0, 0)  # wait and bytes up to the step before
        self._began = time.monotonic()

    def add(self, loader: Loader, batch: dict[str, Any]) -> None:
        """Counts a microbatch: the bytes of its tensors in order; plain numbers are int64."""
        for value in batch.values():
            self._hash.update(np.ascontiguousarray(value).tobytes())
        self._tokens += sum(s.length for row in loader.lineage for s in row.segments)
        if loader.position[1] == 0:
            self._close(loader)

    def _close(self, loader: Loader) -> None:
        """Ends a step with a line on stdout."""
        wait, size = loader.stats.wait_seconds, loader.stats.bytes
        step = {
            "step": loader.step,
            "sha256": self._hash.hexdigest(),
            "tokens": self._tokens,
            "wait_seconds": round(wait - self._seen[0], 6),
            "bytes": size - self._seen[1],
        }
        self.steps.append(step)
        print(
            f"step={step['step']} sha256={step['sha256']} tokens={step['tokens']} "
            f"wait={step['wait_seconds']:.4f}s bytes={step['bytes']}",
            flush=True,
        )
        self._hash, self._tokens, self._seen = hashlib.sha256(), 0, (wait, size)

    def summary(self, loader: Loader) -> dict[str, Any]:
        """Returns everything as JSON values."""
        stats = loader.stats
        return {
            "start": self.place,
            "steps": self.steps,
            "end_of_data": loader.end,
            "topology": self.topology,
            "state": to_json(loader.state_dict()),
            "seconds": round(time.monotonic() - self._began, 6),
            "wait_seconds": round(stats.wait_seconds, 6),
            "bytes": stats.bytes,
            "batches": stats.batches,
            "retries": stats.retries,
        }


def write(path: str, value: Any) -> None:
    """Writes a JSON file, whole or not at all."""
    part = pathlib.Path(path + ".part")
    part.write_text(json.dumps(value, indent=1) + "\n")
    part.replace(path)


def consume(loader: Loader, options: argparse.Namespace) -> Report:
    """Takes batches until enough steps are complete, the data ends, or the mesh changes."""
    rank = {axis: getattr(options, f"{axis}_rank") or 0 for axis in AXES}
    report = Report(dump.where(loader, rank))
    writer = dump.Writer(options.dump, report.place) if options.dump else None
    while options.steps is None or len(report.steps) < options.steps:
        try:
            batch = next(loader, None)
        except TopologyChanged as changed:
            print(f"millrace.rank: {changed}", file=sys.stderr)
            report.topology = changed.topology
            break
        if batch is None:
            break
        if writer is not None:
            writer.add(loader, batch)
        report.add(loader, batch)
        if loader.position[1] == 0:
            time.sleep(options.compute)
            if options.save and options.save_every and len(report.steps) % options.save_every == 0:
                write(options.save, to_json(loader.state_dict()))
    return report


def run(options: argparse.Namespace) -> None:
    """Runs the rank and writes what was asked for."""
    names = ["address", "job", "identity", "start", "prefetch", "timeout", "stall_timeout"]
    names += ["tls_ca", "tls_cert", "tls_key"]
    names += ["access_key_file"]
    names += [f"{axis}_{word}" for axis in AXES for word in ("rank", "size")]
    with connect(**{name: getattr(options, name) for name in names}) as loader:
        if options.load:
            loader.load_state_dict(from_json(json.loads(pathlib.Path(options.load).read_text())))
        report = consume(loader, options)
        if options.save:
            write(options.save, to_json(loader.state_dict()))
        if options.json:
            write(options.json, report.summary(loader))


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    try:
        run(parser().parse_args(arguments))
    except Error as error:
        print(f"millrace.rank: {error}", file=sys.stderr)
        return 4 if isinstance(error, LostError) else 1 if isinstance(error, BugError) else 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
