"""The iterator that a training loop calls."""

from __future__ import annotations

import json
import threading
import time
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from millrace import feedback, lineage, rpc, state
from millrace.config import AXES, Config, Mesh, seconds, step_number, whole
from millrace.coordinates import coordinates_of
from millrace.errors import BugError, TopologyChanged, UserError
from millrace.messages import JoinReply
from millrace.receive import Array, Extra, Microbatch, Step
from millrace.session import Session
from millrace.sources import InPlace, Prefetcher, Source

# Seconds that the end of data waits for the last acknowledgement, which only frees buffers.
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
    order. They may be written to, but for large ones of a type that they travel in, such as
    pixels, where they are views of memory that the service shares. A loader
    connects at its first use, and can be pickled. Threads may take turns in next(), but
    what is known of the last microbatch is that of whichever thread was last.

    The state is that of the last microbatch returned, whatever was prefetched.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self._stats = Stats()
        self._start_seconds = 0.0  # of wait_seconds, before the first microbatch: no stall
        self._closed = False
        self._turn = threading.Lock()  # in next(): two threads would skip each other's steps
        self._reset(None)

    def _reset(self, loaded: state.State | None) -> None:
        """Forgets everything but the configuration and the counters."""
        self._loaded = loaded
        self._done: int | None = loaded["step"] if loaded else None  # whole steps returned
        self._offset: int = loaded["microbatch"] if loaded else 0  # microbatches of the next one
        self._current: Step | None = None  # the step that _offset is in
        self._last: Step | None = None  # which the last microbatch returned is of
        self._number = 0  # of that microbatch in it
        self._end: Step | None = None
        self._session: Session | None = None
        self._source: Source | None = None
        self._finalizer: weakref.finalize[Any, Any] | None = None

    # ---- iteration ----

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self

    def __next__(self) -> dict[str, Any]:
        """Returns the next microbatch. Raises StopIteration at the end of data.

        All ranks of a job end at the same step. TopologyChanged instead where the
        data goes on for ranks of another mesh. LostError after ``timeout`` seconds:
        the call may be repeated.
        """
        if rpc.forked():
            self._check_fork()
        with self._turn:
            step = self._current
            if step is None or self._offset >= len(step.microbatches) or self._closed:
                step = self._stand()
            if step is None:
                raise StopIteration
            return self._return(step).arrays

    def _stand(self) -> Step | None:
        """Returns the step that the next microbatch is of, None at the end; counts the wait."""
        began = time.monotonic()
        try:
            return self._prompt(began) or self._step(began + self._config.timeout, began)
        finally:
            waited = time.monotonic() - began
            self._stats.wait_seconds += waited
            if not self._stats.batches:
                self._start_seconds += waited

    def _prompt(self, now: float) -> Step | None:
        """Returns the next step, if that takes nothing but to take it.

        What else is to be done then, a thread does while the trainer computes. None: see _step().
        """
        if self._closed or self._source is None or self._current is not None or self._offset:
            return None
        waited = self._stats.wait_seconds - self._start_seconds
        return self._source.prompt(now, self._done, waited, self._last)

    def _upcoming(self) -> Step | None:
        self._check_fork()
        with self._turn:
            return self._step(time.monotonic() + self._config.timeout)

    def _step(self, until: float, began: float | None = None) -> Step | None:
        """Returns the step that the next microbatch is of, None at the end.

        The trainer stands still since ``began``; None: that is not counted.
        """
        if self._end is None:
            self._check_open()
        if self._current is None and self._end is None:
            self._take(until, began)
        if self._end is not None and self._end.topology:
            raise TopologyChanged.at(self._end.step, self._end.topology)
        step = self._current
        if step is not None and self._offset >= len(step.microbatches):
            raise UserError(
                f"the state says microbatch {self._offset} of step {step.step}, "
                f"which has {len(step.microbatches)}: load a state of this job"
            )
        return step

    def _take(self, until: float, began: float | None) -> None:
        source = self._start()
        session = self._session or self._connected()
        if self._offset and self._loaded:
            state.check_middle(self._loaded, session.joined(until).mesh)
        session.stood.ended(self._stats.wait_seconds - self._start_seconds)
        if self._done is not None:
            session.advance(self._done)
        with session.stood.still(began if self._stats.batches else None):
            step = source.take(until, self._done)
        if self._done not in (None, step.step):
            raise BugError(f"step {step.step} came when step {self._done} was due")
        self._done = step.step
        if step.end:
            self._end = step
            source.flush(LAST_ACK)
            return
        self._current = step

    def _return(self, step: Step) -> Microbatch:
        if step is not self._last:
            self._last = step
            self._stats.steps += 1
            self._stats.bytes += step.size
        number = self._number = self._offset
        self._stats.batches += 1
        if number + 1 < len(step.microbatches):
            self._current, self._offset = step, number + 1
        else:
            self._current, self._done, self._offset = None, step.step + 1, 0
        return step.microbatches[number]

    def start_prefetch(self) -> None:
        """Begins to fetch in the background, so that the first batch is there sooner."""
        if self._config.prefetch:
            self._start()

    # ---- what is known ----

    @property
    def step(self) -> int | None:
        """The step of the last microbatch returned, None before the first."""
        return self._last.step if self._last else None

    @property
    def microbatch(self) -> int | None:
        """The number of the last microbatch returned in its step, None before the first."""
        return self._number if self._last else None

    @property
    def sequence_length(self) -> int | None:
        """Tokens of a row, padding too, of the step of the last microbatch returned.

        None before the first. A change to the job may make it another one.
        """
        return self._last.sequence_length if self._last else None

    @property
    def rows(self) -> int | None:
        """Rows of the whole batch, over all ranks, of that step. None before the first."""
        return self._last.rows if self._last else None

    @property
    def position(self) -> tuple[int, int]:
        """Whole steps returned, and microbatches of the one after them."""
        if self._done is None:
            self._done = self._joined().next_step
        return self._done, self._offset

    def upcoming(self) -> list[list[lineage.Row]]:
        """Returns the rows of each microbatch of the step that next() goes on with.

        Fetches the step, and changes no position. Empty at the end of data; raises
        TopologyChanged as next() does.
        """
        step = self._upcoming()
        return [self._lineage(step, microbatch) for microbatch in step.microbatches] if step else []

    def sharing(self) -> list[int]:
        """Returns how many ranks share each microbatch that upcoming() tells of.

        That is ``local_cp_size``; 0 in a job without context_split, where the cp ranks do.
        """
        step = self._upcoming()
        parts = step.microbatches if step else []
        return [int(m.arrays.get("local_cp_size", (0,))[0]) for m in parts]

    def _lineage(self, step: Step, microbatch: Microbatch) -> list[lineage.Row]:
        return lineage.read(microbatch.rows, [*self._joined().sources, *step.joined])

    @property
    def lineage(self) -> list[lineage.Row]:
        """The rows of the last microbatch returned: which documents, of which source."""
        last = self._last
        return self._lineage(last, last.microbatches[self._number]) if last else []

    @property
    def extras(self) -> dict[str, list[Extra]]:
        """What the sources' ``keep`` columns hold for the last microbatch returned.

        By column; only ranks of the first pipeline stage get any.
        """
        return self._last.microbatches[self._number].extras() if self._last else {}

    @property
    def kept(self) -> dict[str, Array]:
        """The same as it came over the wire: arrays ``keep.COLUMN`` and their indexes."""
        return dict(self._last.microbatches[self._number].kept) if self._last else {}

    @property
    def images(self) -> dict[str, Array]:
        """The tensors ``image.*`` of the last microbatch returned, named without ``image.``.

        ``cu_seqlens`` and ``dest`` are of the images that this rank encodes, ``send_counts`` and
        ``recv_counts`` the splits of the all-to-all of their embeddings; ``source`` and
        ``sha256``, on the first pipeline stage only, are of the images of the rows. Shapes are
        in docs/bytes.md. Empty for a job without images. Views of the step's buffer.
        """
        return dict(self._last.microbatches[self._number].images) if self._last else {}

    @property
    def end(self) -> bool:
        """Whether the end of data was met. A change of topology is no end."""
        return self._end is not None and not self._end.topology

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
        """Microbatches of a step: of the last one returned, before that of the first."""
        return len(self._last.microbatches) if self._last else self._joined().microbatches

    @property
    def format(self) -> str:
        """Whose key names the batches have: the job's ``output.format``."""
        return self._joined().format

    @property
    def tensors(self) -> tuple[str, ...]:
        """The names that connect() was given of tensors; none: a batch has all."""
        return self._config.tensors

    @property
    def mesh(self) -> Mesh:
        """The sizes of the job's mesh."""
        return Mesh.of(self._joined().mesh)

    @property
    def strides(self) -> dict[str, int]:
        """How far the numbers of neighbouring ranks are apart, by axis; 0 where there is one.

        The axis of the smallest stride is the innermost: its ranks have consecutive numbers.
        """
        return dict(zip(AXES, self._joined().mesh.stride))

    @property
    def rank(self) -> int:
        """The number of this rank among all, as the job's ``topology.order`` counts them."""
        return sum((self._config.axis(axis).rank or 0) * n for axis, n in self.strides.items())

    def coordinates(self, rank: int) -> dict[str, int]:
        """Returns the index of a global rank on each axis: ``{"dp": 1, "cp": 0, ...}``.

        Ranks are numbered as the job's ``topology.order`` says. Raises UserError if the mesh
        has no such rank.
        """
        sizes = {axis: getattr(self.mesh, axis) for axis in AXES}
        return coordinates_of(rank, sizes, self.strides)

    @property
    def sources(self) -> list[str]:
        """The names of the job's sources, in the spec's order, then of those that joined it.

        As of the step of the last microbatch returned.
        """
        return [*self._joined().sources, *(self._last.joined if self._last else ())]

    @property
    def fetches(self) -> bool:
        """Whether this rank gets batches; if not, another one broadcasts to it."""
        return self._joined().fetches

    def set_epoch(self, epoch: int) -> None:
        """Does nothing: the job's spec orders every epoch, by its own seed."""

    # ---- feedback ----

    def report(
        self,
        losses: Mapping[str, float],
        tokens: Mapping[str, int] | None = None,
        step_seconds: float | None = None,
        *,
        step: int | None = None,
        timeout: float = feedback.TIMEOUT,
    ) -> None:
        """Tells the service what this rank measured at a step.

        losses: by source, the mean loss over its tokens in this rank's part of the step;
            may leave sources out. ``mix.feedback`` of the job says how they move its mix.
        tokens: by source, how many tokens that is the mean of; without it, every mean counts
            the same.
        step_seconds: how long the step took, without waiting for data.
        step: default that of the last microbatch returned. With it, a process whose
            DataLoader's worker iterates may report, too.

        Of several ranks that see the same loss, one reports. Returns when the service has
        it. LostError after ``timeout`` seconds: the loader is as before, and the report may
        be left out. UserError for what the job refuses.
        """
        request = feedback.request(losses, tokens, step_seconds)
        request.step, limit = self._reported(step), seconds("timeout", timeout)
        self._connected().report(request, time.monotonic() + limit)

    def _reported(self, step: int | None) -> int:
        step = self.step if step is None else step
        if step is None:
            raise UserError("there is no step to report on: none was returned so far")
        return step_number("step", step)

    # ---- state ----

    def state_dict(self) -> state.State:
        """Returns the position after the last microbatch returned, the same on all ranks.

        A few KB. Asks the service once per step at most; waits until it has
        assembled everything before that position.
        """
        if self._loaded is not None and not self._moved():
            return dict(self._loaded)
        return self.state_at(*self.position)

    def state_at(self, step: int, microbatch: int) -> state.State:
        """Returns the state after ``step`` steps and ``microbatch`` microbatches of the next."""
        step, microbatch = step_number("step", step), whole("microbatch", microbatch)
        if microbatch < 0:
            raise UserError(f"microbatch is {microbatch}: microbatches count up from 0")
        session = self._session or self._connected()
        token = session.tokens.get(step)  # known ones are there after close(), too
        if token is None and self._closed:
            raise UserError(
                f"the loader is closed, and nobody asked for its state at step {step} before: "
                "call state_dict() before close()"
            )
        if token is None:
            token = self._connected().state(step, time.monotonic() + self._config.timeout)
        return state.make(step, microbatch, token)

    def load_state_dict(self, state_dict: state.State) -> None:
        """Goes on after the position that state_dict() described. Drops what was prefetched.

        In the middle of a step dp and cp are to be those of then; else next() raises UserError.
        """
        if self._config.start and self._loaded is None and not self._moved():
            raise UserError(
                f"connect() was given start={self._config.start!r}, and a state is loaded: leave "
                "start out to go on after the state"
            )
        self._go_back(state.checked(state_dict))

    def _go_back(self, loaded: state.State | None) -> None:
        """Goes on after a state, or where the loader began."""
        self._disconnect()
        self._closed = False
        self._reset(loaded)

    def remesh(self, step: int, **places: int) -> None:
        """Has the job go on from a step with another mesh, this loader as a rank of it.

            loader.remesh(step, dp_rank=1, dp_size=3)

        For ranks that are lost, or come. Those that are left agree on the step that all of
        them can go on from: the next one that their models have not learned from. Then each
        calls this with the same step and sizes, and with its own rank. The first call changes
        the topology, the others find it changed. Global batches stay what they were: only who
        gets which part of them changes. What any rank was given from that step on is void,
        and comes again.

        step: whole steps that the models have learned from. The service must still have it:
            no earlier one than the first that not all ranks of the old mesh are done with.
        places: ``dp_rank``, ``dp_size``, ``cp_rank``, ``cp_size``, ``pp_rank``, ``pp_size``,
            ``tp_rank``, ``tp_size``, as for connect(). What is left out stays as it is.

        Ranks that come new connect() with their place, and load the state of that step.
        After LostError, which comes within ``timeout`` seconds, it may be called again.
        UserError for a mesh that the job cannot have, and for a step that is gone.
        """
        self._check_open()
        config = self._config.placed(places)
        token = self.state_at(step_number("step", step), 0)["token"]
        sizes = {name[:2]: places[name] for name in places if name.endswith("_size")}
        change = {"topology": sizes, "reason": "ranks were lost or came"}
        until = time.monotonic() + self._config.timeout
        self._connected().change(json.dumps(change).encode(), token, until)
        self._config = replace(config, start="")
        self.load_state_dict(state.make(step, 0, token))
        self._joined()

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
        loaded = self.state_dict() if self._moved() else self._loaded
        return {"config": self._config, "loaded": loaded}

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

    def _moved(self) -> bool:
        """Whether there may be another position than the one loaded."""
        return self._session is not None and self._session.has_joined

    def _check_fork(self) -> None:
        if self._session is not None:
            rpc.check_fork()

    def _check_open(self) -> None:
        if self._closed:
            raise UserError("the loader is closed: load a state, or connect again")

    def _connected(self) -> Session:
        self._check_fork()
        self._check_open()
        if self._session is None:
            token = self._loaded["token"] if self._loaded else b""
            self._session = Session(self._config, token, self._done)
        if self._finalizer is None:  # an interrupt may fall between
            # A loader that is dropped, or lives to the end of the process, closes.
            self._finalizer = weakref.finalize(self, self._session.close)
        return self._session

    def _start(self) -> Source:
        session = self._connected()
        if self._source is None:
            depth = self._config.prefetch
            self._source = Prefetcher(session, self._done, depth) if depth else InPlace(session)
        self._source.start()  # an interrupt may have kept it from that before
        return self._source

    def _joined(self) -> JoinReply:
        # What a session knows, it knows after close(), too.
        session = self._session if self._session and self._moved() else self._connected()
        return session.joined(time.monotonic() + self._config.timeout)
