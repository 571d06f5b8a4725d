"""A rank in Python that says what it got of each step, when it has the eight after it.

python rank.py ADDRESS DP TP WAY STEPS
"""

from __future__ import annotations

import hashlib
import sys
from collections import deque
from typing import Any

import millrace


def say(step: int, parts: list[dict[str, Any]]) -> None:
    digest = hashlib.sha256()
    for part in parts:
        for name, array in part.items():
            digest.update(name.encode())
            digest.update(array.tobytes())
    print(step, digest.hexdigest(), flush=True)


def main() -> None:
    address, dp, tp, way, steps = sys.argv[1:6]
    place: dict[str, Any] = {
        "dp_rank": int(dp),
        "dp_size": 2,
        "tp_rank": int(tp),
        "tp_size": 2,
    }
    held: deque[tuple[int, list[dict[str, Any]]]] = deque()
    with millrace.connect(address, way=way or None, start="beginning", **place) as loader:
        for step in range(int(steps)):
            parts: list[dict[str, Any]] = []
            while not parts or loader.position[1]:
                batch = next(loader)
                page = {name: a for name, a in loader.kept.items() if name.endswith(".page")}
                parts.append({**batch, **page})
            held.append((step, parts))
            if len(held) > 8:
                say(*held.popleft())
        for one in held:
            say(*one)


if __name__ == "__main__":
    main()
