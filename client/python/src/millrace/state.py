"""The state of a loader, and the names that trainers call it by."""

from __future__ import annotations

import base64
import contextlib
import json
from typing import Any

from millrace.config import step_number, whole
from millrace.errors import UserError
from millrace.messages import Mesh, ResumeToken
from millrace.wire import WireError

VERSION = 1
SAVED = {"job", "step", "token"}  # what `millrace ... --save-token` writes, as JSON
State = dict[str, Any]


def make(step: int, microbatch: int, token: bytes) -> State:
    """Returns a state: ``step`` whole steps and ``microbatch`` of the next were returned."""
    return {"version": VERSION, "step": step, "microbatch": microbatch, "token": token}


def beginning() -> State:
    """Returns the state of before any batch, in the shape of others.

    Its token is a text: torch.load() with weights_only refuses bytes without any.
    """
    return {**make(0, 0, b""), "token": ""}


def is_beginning(state: Any) -> bool:
    """Says whether a state is beginning(), or the empty one of earlier versions."""
    if not isinstance(state, dict):
        return False
    token = state.get("token")
    return not state or (isinstance(token, (bytes, bytearray, str)) and not token)


def checked(state: Any) -> State:
    """Returns a copy of state in its usual types, or raises UserError.

    Checkpoints that keep arrays only are fine: numbers and the token may come back as NumPy's.
    So is the token as base64, which is how JSON holds it, and what --save-token wrote.
    """
    if not isinstance(state, dict):
        raise UserError(f"a state is a dict as state_dict() returned it, not {type(state)}")
    if set(state) == SAVED:
        state = make(state["step"], 0, state["token"])
    if "version" not in state:
        keys = ", ".join(map(repr, state)) or "nothing"
        raise UserError(
            f"a state is a dict as state_dict() returned it, or the JSON of a file that "
            f"--save-token wrote; this one holds {keys}"
        )
    if state["version"] != VERSION:
        raise UserError(f"the state has version {state['version']!r}: this client reads {VERSION}")
    step = step_number("the state's step", state.get("step"))
    microbatch = whole("the state's microbatch", state.get("microbatch"))
    if microbatch < 0:
        raise UserError(f"the state's microbatch is {microbatch}: microbatches count up from 0")
    return make(step, microbatch, _bytes(state.get("token")))


def check_middle(state: State, joined: Mesh) -> None:
    """Raises UserError for the state of the middle of a step that ranks of another mesh began."""
    saved = Mesh()
    with contextlib.suppress(WireError):
        saved = ResumeToken.decode(state["token"]).mesh
    if saved.dp and (saved.dp, saved.cp) != (joined.dp, joined.cp):
        raise UserError(
            f"the state is in the middle of step {state['step']} ({state['microbatch']} of its "
            f"microbatches were returned) of a job with dp={saved.dp} cp={saved.cp}, this one has "
            f"dp={joined.dp} cp={joined.cp}: rows would be left out or come twice. Resume with "
            "that mesh, or from a state saved where loader.position[1] == 0"
        )


def _bytes(token: Any) -> bytes:
    with contextlib.suppress(TypeError, BufferError, ValueError):
        if isinstance(token, str):
            token = base64.b64decode(token, validate=True)
        if len(view := memoryview(token)):
            return view.tobytes()
    raise UserError("the state has no token: keep the dict whole in the checkpoint")


def to_json(state: State) -> dict[str, Any]:
    """Returns a state as JSON values."""
    return {**state, "token": base64.b64encode(state["token"] or b"").decode()}


def from_json(state: Any) -> State:
    """Returns the state that to_json() or --save-token wrote, as its values or as their text.

    Raises UserError for anything else.
    """
    try:
        values = json.loads(state) if isinstance(state, (bytes, bytearray, str)) else state
        return {**values, "token": base64.b64decode(values["token"], validate=True)}
    except (TypeError, ValueError, KeyError) as error:
        raise UserError(
            f"{_short(state)} is no state as JSON, an object with a token in base64 as get_state() "
            f"returns it or --save-token writes it ({type(error).__name__}: {error}): keep it "
            "whole in the checkpoint"
        ) from error


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


class StateNames:
    """Other trainers' names for state_dict and load_state_dict."""

    def state_dict(self) -> State:
        raise NotImplementedError

    def load_state_dict(self, state: State) -> None:
        raise NotImplementedError

    def save_state(self) -> State:
        """Megatron-LM's name."""
        return self.state_dict()

    def get_state(self) -> State:
        """Grain's name."""
        return self.state_dict()

    def set_state(self, state: State) -> None:
        """Grain's name."""
        self.load_state_dict(state)

    def save_state_rank(self) -> State:
        """Energon's name."""
        return self.state_dict()

    def restore_state_rank(self, state: State) -> None:
        """Energon's name."""
        self.load_state_dict(state)
