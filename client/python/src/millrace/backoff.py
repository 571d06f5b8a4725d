"""Pauses between attempts at the same thing: exponential, with jitter.

The numbers and the jitter are those of Go's client and of all roles (internal/rpc/backoff.go).
"""

from __future__ import annotations

# Seconds of the first pause and of the longest one. A service that restarts on the same machine
# is back after about the first; the longest is half of what gRPC waits before it connects again.
FIRST, LONGEST = 0.05, 1.0

# By how much each pause is longer than the one before: little, so that a service that is back is
# found within another pause.
GROWTH = 1.3

# By what part of it a pause is moved, up or down.
JITTER = 0.2


class Backoff:
    """The pauses of one caller. It is for one thread.

    Each pause is longer than the one before, up to LONGEST, and moved by up to a fifth of it, so
    that ranks that lost a server together do not return together. The jitter is a hash of
    ``name``, who waits, and of the attempt: equal names give equal pauses, so that a run can be
    repeated.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._tries = 0

    def next(self) -> float:
        """Returns the seconds to wait after one more attempt that failed."""
        pause = FIRST
        for _ in range(self._tries):
            if pause >= LONGEST:
                break
            pause *= GROWTH
        self._tries += 1
        unit = _hash(f"{self.name}{self._tries}") / (1 << 32) * 2 - 1  # -1 to 1
        return min(pause, LONGEST) * (1 + JITTER * unit)

    def reset(self) -> None:
        """Makes the next pause a short one again, after an attempt that did not fail."""
        self._tries = 0


def _hash(text: str) -> int:
    """Returns FNV-1a in 32 bits, as Go's hash/fnv does."""
    value = 0x811C9DC5
    for byte in text.encode():
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return value
