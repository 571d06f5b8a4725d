"""The state of a loader, and the names that trainers call it by."""

from __future__ import annotations

from typing import Any

from millrace.errors import UserError

VERSION = 1
State = dict[str, Any]


def make(step: int, microbatch: int, token: bytes) -> State:
    """Returns a state: ``step`` whole steps and ``microbatch`` of the next were returned."""
    return {"version": VERSION, "step": step, "microbatch": microbatch, "token": token}


def checked(state: Any) -> State:
    """Returns a copy of state in its usual types, or raises UserError."""
    if not isinstance(state, dict) or "version" not in state:
        raise UserError(f"a state is a dict as state_dict() returned it, not {type(state)}")
    if state["version"] != VERSION:
        raise UserError(f"the state has version {state['version']!r}: this client reads {VERSION}")
    numbers = [state.get("step"), state.get("microbatch")]
    if any(isinstance(n, bool) or not isinstance(n, int) or n < 0 for n in numbers):
        raise UserError(f"the state's step and microbatch are {numbers}: give whole numbers")
    token = state.get("token")
    if not isinstance(token, (bytes, bytearray, memoryview)) or not len(token):
        raise UserError("the state has no token: keep the dict whole in the checkpoint")
    return make(state["step"], state["microbatch"], bytes(token))


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
