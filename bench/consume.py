"""One rank that takes batches as fast as they arrive, as trainers in Python do.

    python consume.py ADDRESS DP,CP,PP SIZES WARM STEPS WAY

Prints a line of JSON after WARM steps and one after STEPS more: its CPU seconds so far, and the
bytes that it received. It counts nothing else: ranks in Go, which get the same batches, do that.
Then it waits until stdin ends. If that ends before, as the bench was killed, the rank ends at once.
"""

import json
import os
import sys
import threading
import time
from typing import Any

import millrace


def watch(done: threading.Event) -> None:
    """Ends this process when stdin does before it is done."""
    sys.stdin.buffer.read()
    if not done.is_set():
        os._exit(1)


def main() -> None:
    done = threading.Event()
    parent = threading.Thread(target=watch, args=(done,), daemon=True)
    parent.start()
    address, place, sizes, warm, steps, way = sys.argv[1:7]
    given: dict[str, Any] = {}
    for axis, rank, of in zip(("dp", "cp", "pp"), place.split(","), sizes.split(",")):
        given[f"{axis}_rank"], given[f"{axis}_size"] = int(rank), int(of)
    with millrace.connect(address, way=way or None, **given) as loader:
        for step in range(1, int(warm) + int(steps) + 1):
            for _ in range(loader.num_microbatches):
                next(loader)
            if step in (int(warm), int(warm) + int(steps)):
                said = {"cpu": time.process_time(), "received": loader.stats.bytes}
                print(json.dumps(said), flush=True)
        done.set()
        parent.join()


if __name__ == "__main__":
    main()
