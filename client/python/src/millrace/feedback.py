"""What a trainer reports: the losses of the sources, and the time of a step."""

from __future__ import annotations

import math
from collections.abc import Mapping

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
    if not losses and step_seconds is None:
        raise UserError("the report is empty: give losses by source, or step_seconds")
    if tokens is not None and set(tokens) != set(losses):
        raise UserError(f"tokens are of {sorted(tokens)}, losses of {sorted(losses)}: give both")
    sources = sorted(losses)
    made = ReportRequest(sources=sources, losses=[float(losses[name]) for name in sources])
    for name, loss in zip(sources, made.losses):
        if not math.isfinite(loss):
            raise UserError(f"the loss of source {name!r} is {loss}: leave the source out")
    made.tokens = [0 if tokens is None else int(tokens[name]) for name in sources]
    for name, count in zip(sources, made.tokens):
        if count < 0:
            raise UserError(f"tokens of source {name!r} are {count}: give 0 or more")
    if step_seconds is not None:
        made.step_seconds = float(step_seconds)
        if not 0 < made.step_seconds < math.inf:
            raise UserError(f"step_seconds is {step_seconds}: give the seconds that the step took")
    return made
