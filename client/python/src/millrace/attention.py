"""Notices that a service says nothing on calls for data.

A step may take long, and be in order: a service that has nothing to send yet says so, five times
a second at first and down to once a second as the call goes on. One that says nothing at all is
stopped, or cut off, and the call is cancelled. A service that is not known to say so is left
alone.
"""

from __future__ import annotations

import threading
import time
from typing import Any, Callable

from millrace.background import Background

# Seconds between two looks, which is how often a service says that it waits at first; later it
# does so after a tenth of the time that the call has waited, or RAREST seconds.
EVERY, RAREST, SHARE = 0.2, 1.0, 10

# Looks in a row without a word that end a call. A link too slow for a frame in that time gets
# twice as many the next time, up to MOST, whoever is called then, as long as it needs them.
LOOKS, MOST = 3, 60

# What servers that say that they wait have in the headers of their answers: the least number of
# looks without a word that end a call, more where many ranks may ask at once.
WAITS = "millrace-waits"


class Call:
    """A call under way, as the attention sees it."""

    def __init__(self, rpc: Any, address: str, limit: int, owed: Callable[[], bool]) -> None:
        self.rpc = rpc
        self.owed = owed  # whether the service has to say something
        self.address = address
        self.limit = limit
        self.since = time.monotonic()
        self.allowed = limit  # now
        self.missed = 0
        self.most = 0  # of missed, before a word
        self.silent = False
        self.begun = False


class Attention:
    """Watches calls; a thread of its own looks while there are any. Safe for several threads."""

    def __init__(self) -> None:
        self._change = threading.Condition()
        self._calls: list[Call] = []
        self._waits: dict[str, int] = {}  # addresses that say that they wait: least looks
        self._limit = LOOKS
        self._thread: Background | None = None
        self._closed = threading.Event()

    def begin(
        self,
        rpc: Any,
        address: str,
        owed: Callable[[], bool] = lambda: True,
        listens: int | None = None,
    ) -> Call:
        """Begins to watch a call. Looks at which nothing is owed do not count.

        ``listens``: the service is known to say that it waits, and the least number of looks
        without a word that it asks for.
        """
        call = Call(rpc, address, self._limit, owed)
        with self._change:
            if listens is not None:
                self._waits[address] = max(self._waits.get(address, 0), min(listens, MOST))
                call.begun = True  # there are no headers to look into
            if address in self._waits:
                self._watch(call)
        return call

    def _watch(self, call: Call) -> None:
        call.allowed = max(call.allowed, self._waits[call.address])
        self._calls.append(call)
        self._change.notify()
        if not self._closed.is_set():
            self._thread = self._thread or Background(self._look, "attention")
            self._thread.start()

    def whole(self, call: Call) -> None:
        """Notes that one of several answers of a call is there."""
        self._relax(call)
        call.limit, call.most = self._limit, 0
        with self._change:
            if call.address in self._waits and call not in self._calls:
                self._watch(call)

    def _relax(self, call: Call) -> None:
        """Has calls whose answers come whole wait less: twice what was needed, if that is more."""
        self._limit = max(min(self._limit, 2 * call.most), LOOKS)

    def heard(self, call: Call) -> None:
        """Notes a frame."""
        call.most = max(call.most, call.missed)
        call.missed = 0
        waited = time.monotonic() - call.since
        allowed = call.limit * int(min(max(waited / SHARE, EVERY), RAREST) / EVERY)
        call.allowed = max(allowed, self._waits.get(call.address, 0))
        if call.begun:
            return
        call.begun = True
        if not self._waits.get(call.address):
            for key, said in call.rpc.initial_metadata() or ():
                if key == WAITS:
                    self._waits[call.address] = min(int(said), MOST) if said.isdecimal() else LOOKS

    def end(self, call: Call, whole: bool) -> None:
        """Ends that; ``whole`` says whether all of the answer came."""
        with self._change:
            if call in self._calls:
                self._calls.remove(call)
        if call.silent:
            least = self._waits.get(call.address, 0)
            self._limit = min(2 * max(call.limit, least), MOST)
        elif whole:
            self._relax(call)

    def watches(self, address: str) -> bool:
        """Says whether calls to address are ended when the service says nothing on them."""
        return address in self._waits

    def close(self) -> None:
        """Ends the watch for good."""
        self._closed.set()
        with self._change:
            self._change.notify()
            thread = self._thread
        if thread is not None:
            thread.join(EVERY)

    def _look(self) -> None:
        # A process that is stopped looks once when it goes on, however long that was.
        while not self._closed.is_set():
            with self._change:
                self._change.wait_for(lambda: self._calls or self._closed.is_set(), EVERY)
                if not self._calls:
                    self._thread = None
                    return
                calls = list(self._calls)
            for call in calls:
                # What is owed from now on is owed for a part of the next look.
                call.missed = call.missed + 1 if call.owed() else -1
                if call.missed > call.allowed:
                    call.silent = True
                    call.rpc.cancel()
            self._closed.wait(EVERY)
