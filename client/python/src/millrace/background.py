"""Threads of a client.

A thread is begun where a trainer asks for data, and Ctrl-C may fall there at any time: before the
thread runs, or while its start waits for a word of it. So whoever has a thread keeps it first,
and starts it then, and again whenever it is to run: it does once.
"""

from __future__ import annotations

import threading
from typing import Callable


class Background:
    """A thread that runs once, however often it is started. It does not keep the process alive."""

    def __init__(self, run: Callable[[], None], name: str) -> None:
        self._run = run
        self._name = f"millrace-{name}"
        self._started = False
        self._begun = threading.Lock()  # taken by the thread that runs, for good
        self._threads: list[threading.Thread] = []  # all but that one end at once

    def start(self) -> None:
        """Has it run. Idempotent."""
        if self._started or self._begun.locked():
            return
        thread = threading.Thread(target=self._once, name=self._name, daemon=True)
        self._threads.append(thread)
        thread.start()
        self._started = True

    def alive(self) -> bool:
        """Says whether it runs."""
        return any(thread.is_alive() for thread in self._threads)

    def join(self, seconds: float) -> None:
        """Waits until it has ended, unless this is it; ``seconds`` at the most."""
        for thread in self._threads:
            if thread.is_alive() and thread is not threading.current_thread():
                thread.join(seconds)

    def _once(self) -> None:
        if self._begun.acquire(blocking=False):
            self._run()
