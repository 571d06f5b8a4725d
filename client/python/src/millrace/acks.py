"""How far a trainer is, told to the service by a thread.

A request for a step takes the trainer's position along. One that is under way may wait for
a step that the service plans only once it hears of a newer position: that goes in a call of
its own then. One that is lost is sent again; one that a newer one overtakes is not sent.
"""

from __future__ import annotations

import threading
import time

from millrace.errors import Error, LostError
from millrace.session import Session

# Seconds before a lost call is made again.
AGAIN = 0.2

# Seconds that a position waits for the next request, which takes it along for nothing.
DELAY = 0.002

# Seconds after which an idle thread looks whether its session was closed by the garbage
# collector, which wakes nobody.
IDLE = 1.0


class Acks:
    """The thread of one session. It sends the session's newest position when told to."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._change = threading.Condition()
        self._closing = False
        self._flushing = False
        self._refused = 0  # a position that the service would not take
        self._thread = threading.Thread(target=self._run, name="millrace-acks", daemon=True)
        self._thread.start()

    def notify(self) -> None:
        """Has the newest position sent, and returns at once."""
        with self._change:
            self._change.notify_all()

    def flush(self, seconds: float) -> None:
        """Waits until the service knows the newest position, ``seconds`` at the most."""
        until = time.monotonic() + seconds
        with self._change:
            self._flushing = True
            self._change.notify_all()
            while self._pending() and self._thread.is_alive():
                left = until - time.monotonic()
                if left <= 0:
                    break
                self._change.wait(min(left, IDLE))
            self._flushing = False

    def close(self, seconds: float) -> None:
        """Ends the thread. A position that was not sent is sent first, or given up."""
        with self._change:
            self._closing = True
            self._change.notify_all()
        if self._thread is not threading.current_thread():
            self._thread.join(seconds)

    def _pending(self) -> bool:
        known = max(self._session.told, self._refused)
        return self._session.acked > known and not self._session.closed

    def _due(self) -> bool:
        """Says whether no request took the newest position along, or nobody waits for that."""
        hurried = self._closing or self._flushing
        return self._pending() and (hurried or self._session.acked > self._session.carried)

    def _run(self) -> None:
        while self._wait():
            position, last = self._session.acked, self._closing
            try:
                self._session.acknowledge(position)
            except LostError:
                if last:
                    return
                self._sleep()
            except Error:  # the next request for a step is refused as well, and says why
                self._refused = position
            with self._change:
                self._change.notify_all()

    def _wait(self) -> bool:
        """Waits for a position to send; False when there will be none."""
        with self._change:
            while True:
                while not self._due() and not self._closing and not self._session.closed:
                    self._change.wait(IDLE)
                until = time.monotonic() + DELAY
                while not self._closing and not self._flushing and time.monotonic() < until:
                    self._change.wait(DELAY)
                if self._due() or self._closing or self._session.closed:
                    return self._due()

    def _sleep(self) -> None:
        """Waits before a lost call is made again."""
        until = time.monotonic() + AGAIN
        with self._change:
            while not self._closing and time.monotonic() < until:
                self._change.wait(AGAIN)
