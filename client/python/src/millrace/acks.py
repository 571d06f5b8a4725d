"""How far a trainer is, told to the service by a thread.

A request for a step takes the trainer's position along. One that is under way may wait for
a step that the service plans only once it hears of a newer position: that goes in a call of
its own then. One that is lost is sent again; one that a newer one overtakes is not sent.
"""

from __future__ import annotations

import contextlib
import threading
import time

from millrace.background import Background
from millrace.backoff import Backoff
from millrace.errors import Error, LostError, MovedError
from millrace.session import Session

# Seconds that a position waits for the next request, which takes it along for nothing.
DELAY = 0.002

# Seconds between two words of a rank that the job did not take along when it was moved: a
# constructor that hears nothing for 15 s takes it for one that is about to be restarted.
INSIST = 5.0

# Seconds after which an idle thread looks whether its session was closed by the garbage
# collector, which wakes nobody.
IDLE = 1.0


class Acks:
    """The thread of one session. It sends the session's newest position when told to."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._pauses = Backoff(session.config.who())  # between calls that were lost in a row
        self._change = threading.Condition()
        self._closing = False
        self._flushing = False
        self._refused = 0  # a position that the service would not take
        self.moved: MovedError | None = None  # why the rank cannot go on
        self._thread = Background(self._run, "acks")

    def start(self) -> None:
        """Starts the thread. Idempotent."""
        self._thread.start()

    def notify(self) -> None:
        """Has the newest position sent, and returns at once."""
        with self._change:
            self._change.notify_all()

    def refuse(self, error: MovedError) -> None:
        """Notes that the rank cannot go on."""
        with self._change:
            self.moved, self._refused = self.moved or error, self._session.acked
            self._change.notify_all()

    def flush(self, seconds: float) -> None:
        """Waits until the service knows the newest position, ``seconds`` at the most."""
        until = time.monotonic() + seconds
        with self._change:
            self._flushing = True
            self._change.notify_all()
            while self._pending() and self._thread.alive():
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
        self._thread.join(seconds)

    def _pending(self) -> bool:
        known = max(self._session.told, self._refused)
        return self._session.acked > known and not self._session.closed

    def _due(self) -> bool:
        """Says whether no request took the newest position along, or nobody waits for that."""
        hurried = self._closing or self._flushing
        return self._pending() and (hurried or self._session.acked > self._session.carried)

    def _run(self) -> None:
        left = False
        while self._wait() and self.moved is None:
            position, last = self._session.acked, self._closing
            try:
                self._session.acknowledge(position, leaves=last)
                left = last
                self._pauses.reset()
            except LostError:
                if last:
                    return
                self._sleep()
            except MovedError as error:
                self.refuse(error)
            except Error:  # the next request for a step is refused as well, and says why
                self._refused = position
            with self._change:
                self._change.notify_all()
        if self.moved is not None:
            self._insist()
            return
        acked = self._session.acked
        if not left and not self._session.closed and self._refused < max(acked, 1):
            with contextlib.suppress(Error):  # nobody waits for it, and it may be lost
                self._session.acknowledge(acked, leaves=True)

    def _insist(self) -> None:
        """Says again and again that the rank is there: others wait for it, and hear why."""
        with self._change:
            self._change.notify_all()
        due = time.monotonic() + INSIST
        while not self._closing and not self._session.closed:
            with self._change:
                self._change.wait(IDLE)
            if time.monotonic() >= due and not self._closing and not self._session.closed:
                due += INSIST
                with contextlib.suppress(Error):
                    self._session.acknowledge(self._session.acked)

    def _wait(self) -> bool:
        """Waits for a position to send; False when there will be none."""
        with self._change:
            while True:
                while not self._due() and not self._over():
                    self._change.wait(IDLE)
                until = time.monotonic() + DELAY
                while not self._closing and not self._flushing and time.monotonic() < until:
                    self._change.wait(DELAY)
                if self._due() or self._over():
                    return self._due()

    def _over(self) -> bool:
        return self._closing or self._session.closed or self.moved is not None

    def _sleep(self) -> None:
        """Waits before a lost call is made again."""
        until = time.monotonic() + self._pauses.next()
        with self._change:
            while not self._closing and (left := until - time.monotonic()) > 0:
                self._change.wait(left)
