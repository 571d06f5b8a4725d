"""Trains all ranks of a dp x cp mesh in step, each in a thread, a step every PACE seconds.

    python ranks.py ADDRESS DP CP STEPS PREFETCH PACE

Prints a line of JSON for each step: how long each rank waited for it, in seconds; and one with
the resume token at the end, which is the same for all ranks.
"""

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import millrace


def take(loader: millrace.Loader) -> float:
    """Takes the microbatches of a step; returns how long that took."""
    begin = time.monotonic()
    for _ in range(loader.num_microbatches):
        next(loader)
    return time.monotonic() - begin


def main() -> None:
    address, (dp, cp, steps, prefetch), pace = (
        sys.argv[1],
        map(int, sys.argv[2:6]),
        float(sys.argv[6]),
    )
    ranks = [
        millrace.connect(
            address, dp_rank=d, dp_size=dp, cp_rank=c, cp_size=cp, prefetch=prefetch, timeout=180
        )
        for d in range(dp)
        for c in range(cp)
    ]
    with ThreadPoolExecutor(len(ranks)) as threads:
        for _ in range(steps):
            begin = time.monotonic()
            print(json.dumps({"waits": list(threads.map(take, ranks))}), flush=True)
            time.sleep(max(0.0, begin + pace - time.monotonic()))
    tokens = {rank.state_dict()["token"] for rank in ranks}
    if len(tokens) != 1:
        raise SystemExit(f"the ranks end with {len(tokens)} tokens")
    print(json.dumps({"token": tokens.pop().hex()}), flush=True)
    for rank in ranks:
        rank.close()


if __name__ == "__main__":
    main()
