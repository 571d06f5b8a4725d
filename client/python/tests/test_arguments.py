"""Arguments of a wrong type are refused before anyone is asked."""

from __future__ import annotations

import numpy as np
import pytest

import millrace
from millrace import feedback
from millrace.coordinates import coordinates_of

NOWHERE = "127.0.0.1:9"
WRONG = ["5", None, [], object(), True, b"x", 0, -1, float("nan")]


@pytest.mark.parametrize("value", WRONG, ids=repr)
def test_seconds(value):
    loader = millrace.connect(NOWHERE, dp_rank=0, dp_size=1)
    calls = {
        "timeout": [
            lambda: millrace.peek(NOWHERE, timeout=value),
            lambda: millrace.change(NOWHERE, {"pause": ["web"]}, timeout=value),
            lambda: millrace.state_at(NOWHERE, 1, timeout=value),
            lambda: loader.report({"web": 1.0}, step=1, timeout=value),
            lambda: millrace.connect(NOWHERE, dp_rank=0, timeout=value),
        ],
        "stall_timeout": [
            lambda: millrace.peek(NOWHERE, stall_timeout=value),
            lambda: millrace.connect(NOWHERE, dp_rank=0, stall_timeout=value),
        ],
    }
    for name, each in calls.items():
        for call in each:
            with pytest.raises(millrace.UserError, match=rf"^{name} is .*: give the seconds"):
                call()
    loader.close()


@pytest.mark.parametrize("value", [10**400, float("inf"), 1e300], ids=["whole", "inf", "float"])
def test_more_seconds_than_anybody_waits(serve, value):
    """Ten years, then: of a clock that counts in floats."""
    address = serve(steps=1).address
    with millrace.connect(address, dp_rank=0, timeout=value, stall_timeout=value) as loader:
        assert len(list(loader)) == 2
        loader.report({"web": 1.0}, timeout=value)
    assert millrace.change(address, {"pause": "web"}, timeout=value) > 0


@pytest.mark.parametrize("value", [5, "token", [], object(), 1.5], ids=repr)
def test_from_token(value):
    with pytest.raises(
        millrace.UserError, match=r"^from_token is .*give a token or what state_dict"
    ):
        millrace.change(NOWHERE, {"topology": {"dp": 2}}, from_token=value)


@pytest.mark.parametrize("value", ["1", None, 1.5, [], object(), True], ids=repr)
def test_whole_numbers(value):
    loader = millrace.connect(NOWHERE, dp_rank=0, dp_size=1)
    ones = dict.fromkeys(("dp", "cp", "pp", "tp"), 1)
    for name, call in {
        "rank": lambda: coordinates_of(value, ones, ones),
        "step": lambda: loader.state_at(value, 0),
        "microbatch": lambda: loader.state_at(0, value),
    }.items():
        with pytest.raises(millrace.UserError, match=rf"^{name} is .*: give a whole number"):
            call()
    loader.close()


def test_a_microbatch_before_the_first(serve, open_loader):
    loader = open_loader(serve())
    next(loader)
    with pytest.raises(millrace.UserError, match="microbatch is -1: microbatches count up from 0"):
        loader.state_at(0, -1)


@pytest.mark.parametrize("name", ["start", "way", "shared_dir"])
@pytest.mark.parametrize("value", [[], {}, 0, False], ids=repr)
def test_what_is_empty_and_no_text(name, value):
    with pytest.raises(millrace.UserError, match=f"^{name} is "):
        millrace.connect(NOWHERE, dp_rank=0, dp_size=1, **{name: value})


LOSSES = [None, 5, [], np.array([1.0, 2.0]), {1: 2.0}, {"web": 1.0, 1: 2.0}, {b"web": 1.0}]


@pytest.mark.parametrize("losses", LOSSES, ids=repr)
def test_losses(losses):
    with pytest.raises(millrace.UserError, match=r"^losses are .*give them by source"):
        feedback.request(losses, None, 1.0)
