"""The iterator that a training loop calls."""

from __future__ import annotations

import contextlib
import time
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from millrace import lineage, rpc, state
from millrace.config import Config, Mesh
from millrace.errors import BugError, Error, UserError
from millrace.messages import JoinReply
from millrace.receive import Array, Extra, Microbatch, Step
from millrace.session import Session
from millrace.sources import InPlace, Prefetcher, Source

# Seconds given to the last ack, which only frees buffers of the service.
LAST_ACK = 5.0


@dataclass
class Stats:
    """Counters of one loader since it was made. ``bytes`` and ``steps`` are of begun steps."""

    batches: int = 0  # microbatches returned
    steps: int = 0
    bytes: int = 0
    wait_seconds: float = 0.0  # that the trainer stood still in next()
    retries: int = 0  # requests that were lost and made again


class Loader(state.StateNames):
    """An iterator over the microbatches of one rank; see connect().

    Each is a dict of NumPy arrays with the model's keys only, in the service's
    order. The arrays of a step share one buffer and may be written to. A loader
    connects at its first use, belongs to one thread, and can be pickled.

    The state is that of the last microbatch returned, whatever was prefetched.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self._stats = Stats()
        self._closed = False
        self._reset(None)

    def _reset(self, loaded: state.State | None) -> None:
        """Forgets everything but the configuration and the counters."""
        self._loaded = loaded
        self._done: int | None = loaded["step"] if loaded else None  # whole steps returned
        self._offset: int = loaded["microbatch"] if loaded else 0  # microbatches of the next one
        self._current: Step | None = None  # the step that _offset is in
        self._last: tuple[int, int, Microbatch] | None = None
        self._end = False
        self._session: Session | None = None
        self._source: Source | None = None
        self._finalizer: weakref.finalize[Any, Any] | None = None

    # ---- iteration ----

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self

    def __next__(self) -> dict[str, Any]:
        """Returns the next microbatch. Raises StopIteration at the end of data.

        All ranks of a job end at the same step. LostError after ``timeout``
        seconds: the call may be repeated.
        """
        began = time.monotonic()
        try:
            step = self._step(began + self._config.timeout)
        finally:
            self._stats.wait_seconds += time.monotonic() - began
        if step is None:
            raise StopIteration
        return self._return(step).arrays

    def _step(self, until: float) -> Step | None:
        """Returns the step that the next microbatch is of, None at the end."""
        if self._current is None and not self._end:
            self._take(until)
        return self._current

    def _take(self, until: float) -> None:
        source = self._start()
        session = self._connected()
        if self._done is not None:
            session.advance(self._done)
        step = source.take(until)
        if self._done not in (None, step.step):
            raise BugError(f"step {step.step} came when step {self._done} was due")
        self._done = step.step
        if step.end:
            self._end = True
            self._ack_last(step)
            return
        if self._offset >= len(step.microbatches):
            raise UserError(
                f"the state says microbatch {self._offset} of step {step.step}, "
                f"which has {len(step.microbatches)}: load a state of this job"
            )
        self._current = step
        self._stats.steps += 1
        self._stats.bytes += step.size

    def _return(self, step: Step) -> Microbatch:
        microbatch = step.microbatches[self._offset]
        self._last = (step.step, self._offset, microbatch)
        self._stats.batches += 1
        self._offset += 1
        if self._offset == len(step.microbatches):
            self._current, self._done, self._offset = None, step.step + 1, 0
        return microbatch

    def _ack_last(self, end: Step) -> None:
        """Tells the service that this rank is done, if it was told less so far."""
        if end.acked >= end.step:
            return
        with contextlib.suppress(Error):  # the data was all delivered
            self._connected().batch(end.step, time.monotonic() + LAST_ACK)

    def start_prefetch(self) -> None:
        """Begins to fetch in the background, so that the first batch is there sooner."""
        if self._config.prefetch:
            self._start()

    # ---- what is known ----

    @property
    def step(self) -> int | None:
        """The step of the last microbatch returned, None before the first."""
        return self._last[0] if self._last else None

    @property
    def microbatch(self) -> int | None:
        """The number of the last microbatch returned in its step, None before the first."""
        return self._last[1] if self._last else None

    @property
    def position(self) -> tuple[int, int]:
        """Whole steps returned, and microbatches of the one after them."""
        if self._done is None:
            self._done = self._joined().next_step
        return self._done, self._offset

    @property
    def lineage(self) -> list[lineage.Row]:
        """The rows of the last microbatch returned: which documents, of which source."""
        rows = self._last[2].rows if self._last else []
        return lineage.read(rows, self.sources) if rows else []

    @property
    def extras(self) -> dict[str, list[Extra]]:
        """What the sources' ``keep`` columns hold for the last microbatch returned.

        By column; only ranks of the first pipeline stage get any.
        """
        return self._last[2].extras() if self._last else {}

    @property
    def kept(self) -> dict[str, Array]:
        """The same as it came over the wire: arrays ``keep.COLUMN`` and their indexes."""
        return dict(self._last[2].kept) if self._last else {}

    @property
    def end(self) -> bool:
        """Whether the end of data was met."""
        return self._end

    @property
    def stats(self) -> Stats:
        """Counters; the object is live."""
        if self._session is not None:
            self._stats.retries = self._session.retries
        return self._stats

    @property
    def job(self) -> str:
        """The job's name."""
        return self._joined().job

    @property
    def identity(self) -> bytes:
        """The digest of what the job's spec says about the data."""
        return self._joined().identity

    @property
    def num_microbatches(self) -> int:
        """Microbatches of a step."""
        return self._joined().microbatches

    @property
    def format(self) -> str:
        """Whose key names the batches have: megatron or hf."""
        return self._joined().format

    @property
    def mesh(self) -> Mesh:
        """The sizes of the job's mesh."""
        return Mesh.of(self._joined().mesh)

    @property
    def sources(self) -> list[str]:
        """The names of the job's sources, in the spec's order."""
        return self._joined().sources

    @property
    def fetches(self) -> bool:
        """Whether this rank gets batches; if not, another one broadcasts to it."""
        return self._joined().fetches

    def set_epoch(self, epoch: int) -> None:
        """Does nothing: the job's spec orders every epoch, by its own seed."""

    # ---- state ----

    def state_dict(self) -> state.State:
        """Returns the position after the last microbatch returned, the same on all ranks.

        A few KB. Asks the service once per step at most; waits until it has
        assembled everything before that position.
        """
        if self._session is None and self._loaded is not None:
            return dict(self._loaded)
        return self.state_at(*self.position)

    def state_at(self, step: int, microbatch: int) -> state.State:
        """Returns the state after ``step`` steps and ``microbatch`` microbatches of the next."""
        session = self._session or self._connected()
        token = session.tokens.get(step)  # known ones are there after close(), too
        if token is None:
            token = self._connected().state(step, time.monotonic() + self._config.timeout)
        return state.make(step, microbatch, token)

    def load_state_dict(self, state_dict: state.State) -> None:
        """Goes on after the position that state_dict() described. Drops what was prefetched."""
        loaded = state.checked(state_dict)
        self._disconnect()
        self._closed = False
        self._reset(loaded)

    # ---- life ----

    def close(self) -> None:
        """Ends the connections and the thread. Idempotent; load_state_dict() reopens."""
        self._closed = True
        self._disconnect()

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        live = self._session is not None and not self._closed
        return {"config": self._config, "loaded": self.state_dict() if live else self._loaded}

    def __setstate__(self, pickled: dict[str, Any]) -> None:
        self.__init__(pickled["config"])  # type: ignore[misc]
        self._reset(pickled["loaded"])

    def _disconnect(self) -> None:
        if rpc.forked():
            return
        if self._source is not None:
            self._source.close()
        if self._session is not None:
            self._session.close()
        if self._finalizer is not None:
            self._finalizer.detach()

    def _connected(self) -> Session:
        if self._session is not None:
            rpc.check_fork()
        if self._closed:
            raise UserError("the loader is closed: load a state, or connect again")
        if self._session is None:
            token = self._loaded["token"] if self._loaded else b""
            self._session = Session(self._config, token, self._done)
            # A loader that is dropped, or lives to the end of the process, closes.
            self._finalizer = weakref.finalize(self, self._session.close)
        return self._session

    def _start(self) -> Source:
        session = self._connected()
        if self._source is None and self._config.prefetch:
            self._source = Prefetcher(session, self._done, self._config.prefetch)
        elif self._source is None:
            self._source = InPlace(session, self._done)
        return self._source

    def _joined(self) -> JoinReply:
        return self._connected().joined(time.monotonic() + self._config.timeout)
