"""Where a loader takes its steps from: asked for in place, or prefetched by a thread."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections import deque
from typing import Any, Protocol

from millrace import rpc, session
from millrace.acks import IDLE, Acks
from millrace.background import Background
from millrace.errors import Error, MovedError
from millrace.receive import Step
from millrace.session import Session

# Seconds that closing waits for the thread: its calls are cancelled, so it ends
# at once unless the machine is starved.
JOIN_SECONDS = 10.0

# Seconds that closing waits for the acknowledgement of the last position.
CLOSE_SECONDS = 1.0

# Seconds between two steps from which on a thread does what can wait until the trainer computes.
# For one that asks at once it is done in its own call, as waking the thread costs more.
TRAINS = 0.005

# What is known when the trainer takes a step: the steps that it is done with, the seconds that it
# has waited, and what it lets go of.
Taken = tuple[int, float, Any]


class Source(Protocol):
    """Steps in order, from the session's position on.

    One that is asked for again comes again: an interrupt, such as Ctrl-C, may have kept it from
    the trainer.
    """

    def start(self) -> None:
        """Starts what runs in the background. Idempotent."""

    def prompt(self, now: float, done: int | None, waited: float, last: Any) -> Step | None:
        """Returns the step after ``done`` if it is there; None: ask take().

        It costs the trainer as little as can be: ``done``, the seconds ``waited`` and the rest
        are said later, and ``last``, which the trainer is done with, is let go of then.
        """

    def take(self, until: float, due: int | None) -> Step:
        """Returns the step that is due (None: the first), or the end of data, again and again."""

    def flush(self, seconds: float) -> None:
        """Waits until the service knows how far the trainer is, ``seconds`` at the most."""

    def close(self) -> None:
        """Ends the source and its session. Idempotent."""


class InPlace:
    """Asks for each step when it is wanted."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def start(self) -> None:
        """Does nothing: there is nothing."""

    def prompt(self, now: float, done: int | None, waited: float, last: Any) -> Step | None:
        return None

    def take(self, until: float, due: int | None) -> Step:
        what = "the first step" if due is None else f"step {due}"
        with self._session.logged(what, until):
            step = self._session.joined(until).next_step if due is None else due
            self._session.tell(step + 1)
            return self._session.batch(step, until)

    def flush(self, seconds: float) -> None:
        """Does nothing: the last request said so."""

    def close(self) -> None:
        """Says how far the trainer is first, and that no more comes of it."""
        if not self._session.closed:
            with contextlib.suppress(Error):  # nobody waits for it, and it may be lost
                self._session.acknowledge(self._session.acked, leaves=True)
        self._session.close()


class Prefetcher:
    """A thread that keeps up to ``depth`` steps ready.

    It never gives up on a lost service: only the trainer's own wait is limited.
    Any other error is kept, and raised once the steps before it are used up; that the job was
    moved without this rank is raised at once.
    """

    def __init__(self, session: Session, step: int | None, depth: int) -> None:
        self._session = session
        self._step = step
        self._depth = depth
        self._taken = step  # the next one that the trainer takes; None: it has not joined
        self._ready: deque[Step] = deque()
        self._given: Step | None = None  # the last one that left _ready, or is about to
        self._error: Error | None = None
        self._gave = time.monotonic()  # to the trainer
        self._change = threading.Condition()
        self._acks = Acks(session)
        self._took: queue.SimpleQueue[Taken | None] = queue.SimpleQueue()  # None only wakes
        # That of the steps is the last: where one is ready, all run.
        self._threads = [Background(self._tell_on, "tell"), Background(self._run, "prefetch")]

    def start(self) -> None:
        self._acks.start()
        for thread in self._threads:
            thread.start()

    def prompt(self, now: float, done: int | None, waited: float, last: Any) -> Step | None:
        try:
            step = self._ready[0]
            if now - self._gave < TRAINS or step.step != done or step.end or self._acks.moved:
                return None
            self._given = step
            self._ready.popleft()
        except IndexError:  # the last one may be dropped by close()
            return None
        self._gave, self._taken = now, done + 1
        self._took.put((done, waited, last))
        return step

    def take(self, until: float, due: int | None) -> Step:
        told = self._tell(1)
        with self._change:
            step = self._given
            if step is None or due not in (None, step.step):
                step = self._next(until)
            if step.end:
                return step
            self._taken = step.step + 1
            if not self._session.streams:  # else the thread does not wait for room
                self._change.notify_all()
        if not told:
            self._took.put((step.step, self._session.stood.seconds(), None))
        self._gave = time.monotonic()
        return step

    def _next(self, until: float) -> Step:
        """Takes the next step out of those that are ready; waits for it. _change is held."""
        if self._ready and self._ready[0] is self._given:  # interrupted before it left
            self._ready.popleft()
        if not self._ready:
            self._wait(until)
        if self._acks.moved is not None:
            raise self._acks.moved
        step = self._ready[0]
        if not step.end:
            self._given = step
            self._ready.popleft()
        return step

    def _tell(self, more: int) -> bool:
        """Asks for more steps than those after what the trainer has.

        Returns False if there is no stream to say it on.
        """
        if self._taken is not None and self._session.tell(self._taken + more + self._depth):
            return True
        self._acks.notify()
        return False

    def _tell_on(self) -> None:
        """Says what the trainer took, while it trains."""
        while not self._session.closed:
            try:
                took = self._took.get(timeout=IDLE)
            except queue.Empty:
                continue
            if took is None:
                continue
            done, waited = took[:2]
            del took  # the slot that it may have had is free then, which is said, too
            self._session.stood.ended(waited)
            self._session.advance(done)
            self._tell(0)
            if not self._session.streams:
                with self._change:
                    self._change.notify_all()

    def _wait(self, until: float) -> None:
        """Waits for a step, or for what ends the rank; _change is held."""
        began = time.monotonic()
        log_at = began + session.WAIT_LOG_AFTER
        wait = self._session.wait(self._what(), until)
        while not self._ready and self._acks.moved is None:
            if self._error is not None:
                raise self._error
            now = time.monotonic()
            self._session.progress.check(wait, now)
            if now >= log_at:
                waited = (now - began, self._what())
                threading.Thread(target=self._session.log_wait, args=waited, daemon=True).start()
                log_at = now + session.WAIT_LOG_EVERY
            self._change.wait(max(min(until - now, log_at - now, rpc.LOOK), 0.001))

    def _what(self) -> str:
        return "the first step" if self._step is None else f"step {self._step}"

    def flush(self, seconds: float) -> None:
        self._acks.flush(seconds)

    def close(self) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                if took := self._took.get_nowait():
                    self._session.advance(took[0])
        self._acks.close(CLOSE_SECONDS)
        self._session.close()
        with self._change:
            self._ready.clear()
            self._given = None
            self._error = rpc.Closed("the loader was closed")
            self._change.notify_all()
        self._took.put(None)
        for thread in self._threads:
            thread.join(JOIN_SECONDS)

    def _run(self) -> None:
        try:
            joined = self._session.joined(None)
            if self._step is None:
                self._step = joined.next_step
            if self._taken is None:
                self._taken = self._step
            # More, if the trainer waits already: it found nobody to tell.
            self._session.tell(self._taken + self._depth)
            while self._wait_for_room():
                step = self._session.batch(self._step, None)
                self._put(step)
                if step.end:
                    return
                self._step += 1
        except Error as error:
            self._fail(error)
        except BaseException as error:  # anything else would leave the trainer waiting
            self._fail(Error(f"the prefetch thread died of {error!r}"))
            raise

    def _wait_for_room(self) -> bool:
        # On a stream what may come is bounded already, and what ends it is to be heard.
        with self._change:
            while (
                len(self._ready) >= self._depth
                and not self._session.closed
                and not self._session.streams
            ):
                self._change.wait(IDLE)
            return not self._session.closed

    def _put(self, step: Step) -> None:
        with self._change:
            if not self._session.closed:
                self._ready.append(step)
            self._change.notify_all()

    def _fail(self, error: Error) -> None:
        if isinstance(error, MovedError):  # the trainer hears it whatever is ready
            self._acks.refuse(error)
        with self._change:
            self._error = self._error or error
            self._change.notify_all()
