"""How long a rank has waited, and for whom: what the service's parts say of it.

Each part says what it waits for itself, and for how long nothing of that has moved. A trainer's
call ends when nothing has moved anywhere for ``stall_timeout``. While other ranks are waited
for, it goes on: ``timeout`` ends it.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import NamedTuple

from millrace.errors import LostError, WaitError

# How what is said of a part begins that was not there.
LOST = "is lost: "

# Seconds between two looks at a wait that are too many: calls and pauses take less, so this process
# itself was stopped.
STOPPED = 30.0


class Wait(NamedTuple):
    """A call of the trainer that waits. Times are on time.monotonic()'s clock."""

    who: str  # the rank
    what: str  # it waits for
    began: float
    until: float
    stall: float  # seconds


class Stood:
    """How long the trainer has stood still for data. Safe for several threads."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._ended = 0.0  # seconds of waits that have ended
        self._before = 0.0  # _ended, when the wait under way began
        self._since: float | None = None  # it began

    def seconds(self) -> float:
        """Returns the seconds, those of the wait under way too. They never fall."""
        with self._guard:
            return self._now()

    def waits(self) -> bool:
        """Says whether a wait is under way."""
        return self._since is not None

    def ended(self, seconds: float) -> None:
        """Takes how long the waits that have ended were, all together.

        What another thread says late may hold a part of the wait under way.
        """
        with self._guard:
            self._ended = max(self._ended, seconds)

    @contextlib.contextmanager
    def still(self, began: float | None) -> Iterator[None]:
        """Counts a wait for as long as what is done inside lasts; None: counts nothing."""
        with self._guard:
            self._before, self._since = self._ended, began
        try:
            yield
        finally:
            with self._guard:
                self._ended, self._since = self._now(), None

    def _now(self) -> float:
        if self._since is None:
            return self._ended
        return max(self._ended, self._before + time.monotonic() - self._since)


class Progress:
    """What is known of those who are waited for. Safe for several threads."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._moved = time.monotonic()
        self._looked = self._moved
        self._ranks = False
        self._words: dict[str, str] = {}

    def hear(self, who: str, reason: str, idle: float, ranks: bool) -> None:
        """Takes what a part of the service says that it waits for; idle is in seconds."""
        with self._guard:
            self._words[who] = f"waits: {reason or 'it does not say for what'}"
            self._ranks = ranks
            self._moved = max(self._moved, time.monotonic() - idle)

    def part(self, who: str) -> None:
        """Notes that a part of a step came."""
        with self._guard:
            self._words[who] = "sends the step"
            self._ranks = False
            self._moved = time.monotonic()

    def lost(self, who: str, why: Exception) -> None:
        """Notes why a part was not there, or did not answer.

        That a call's time was over says less than what the one before it ended with.
        """
        with self._guard:
            known = self._words.get(who, "").startswith(LOST)
            if getattr(why, "code", "") != "DEADLINE_EXCEEDED" or not known:
                self._words[who] = f"{LOST}{why}"
            self._ranks = False

    def late(self, who: str, why: object) -> None:
        """Notes that a call's own time was over: what the part said last stands."""
        with self._guard:
            self._words.setdefault(who, f"is late: {why}")

    def answered(self, who: str) -> None:
        """Forgets what was said of one that has answered."""
        with self._guard:
            self._words.pop(who, None)

    def move(self) -> None:
        """Notes that a step came: nobody is waited for."""
        with self._guard:
            self._words.clear()
            self._ranks = False
            self._moved = time.monotonic()

    def check(self, wait: Wait, now: float) -> None:
        """Raises WaitError for a wait that is too long."""
        with self._guard:
            if now - self._looked > STOPPED and self._looked > wait.began:
                self._moved = now  # this process was stopped, and heard nothing meanwhile
            self._looked = now
            idle = now - max(self._moved, wait.began)
            if now < wait.until and (self._ranks or idle < wait.stall):
                return
            chain = [f"{who} {text}" for who, text in self._words.items()]
            ranks = self._ranks
        raise WaitError.of(wait.who, wait.what, now - wait.began, idle, ranks, chain)

    def over(self, wait: Wait, error: LostError) -> WaitError:
        """Returns the error of a wait whose time is over, which ``error`` says, too."""
        with self._guard:
            now = time.monotonic()
            chain = [*(f"{who} {text}" for who, text in self._words.items()), str(error)]
            idle = now - max(self._moved, wait.began)
            return WaitError.of(wait.who, wait.what, now - wait.began, idle, self._ranks, chain)
