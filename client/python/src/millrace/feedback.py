"""What a trainer reports: the losses of the sources, and the time of a step."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from millrace.config import COUNTS, whole
from millrace.errors import UserError
from millrace.messages import ReportRequest

# Seconds that a report may hold up the training loop.
TIMEOUT = 5.0


def request(
    losses: Mapping[str, float], tokens: Mapping[str, int] | None, step_seconds: float | None
) -> ReportRequest:
    """Returns the request, without who asks. Raises UserError for what cannot be right.

    Sources are in the order of their names, so that equal reports are equal bytes.
    """
    for word, given in (("losses", losses), ("tokens", {} if tokens is None else tokens)):
        if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
            raise UserError(f'{word} are {given!r}: give them by source, such as {{"web": 2.5}}')
    if not losses and step_seconds is None:
        raise UserError("the report is empty: give losses by source, or step_seconds")
    if tokens is not None and set(tokens) != set(losses):
        raise UserError(f"tokens are of {sorted(tokens)}, losses of {sorted(losses)}: give both")
    sources = sorted(losses)
    losses = {name: _number(f"the loss of source {name!r}", losses[name]) for name in sources}
    made = ReportRequest(sources=sources, losses=list(losses.values()))
    for name, loss in losses.items():
        if not math.isfinite(loss):
            raise UserError(f"the loss of source {name!r} is {loss}: leave the source out")
    for name in sources:
        count = 0 if tokens is None else whole(f"tokens of source {name!r}", tokens[name])
        if not 0 <= count <= COUNTS:
            raise UserError(f"tokens of source {name!r} are {count}: valid is 0 to {COUNTS}")
        made.tokens.append(count)
    if step_seconds is not None:
        made.step_seconds = _number("step_seconds", step_seconds)
        if not 0 < made.step_seconds < math.inf:
            raise UserError(f"step_seconds is {step_seconds}: give the seconds that the step took")
    return made


def _number(what: str, value: Any) -> float:
    """Returns a number, also one in a tensor. Raises UserError for anything else."""
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise UserError(f"{what} is {value!r}: give a number") from None
