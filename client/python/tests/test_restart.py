"""The planner of a running job is killed and started again at the same address."""

from __future__ import annotations

import time

import pytest
from processes import Roles, needs_binary, write_job
from test_service import in_threads, plain, ranks_of

import millrace
from millrace import session

pytestmark = needs_binary

STEPS = 8  # more than are planned ahead
PER_STEP = 2  # microbatches


@pytest.fixture
def restart(tmp_path):
    """Returns the address of a job for two ranks, and what restarts its service there."""
    spec = write_job(tmp_path, dp=2)
    lives = [Roles(spec)]

    def again():
        lives[-1].kill_planner()
        lives.append(Roles(spec, lives[0].address))

    yield lives[0].address, again
    for roles in lives:
        roles.stop()


def opened(address, prefetch):
    places = ranks_of({"dp": 2})
    return [millrace.connect(address, prefetch=prefetch, timeout=60, **place) for place in places]


def take(loader, steps):
    return [plain(next(loader)) for _ in range(steps * PER_STEP)]


def test_ranks_that_know_where_they_are_go_on(restart, tmp_path):
    address, again = restart
    want = in_threads(take, [(loader, 2 * STEPS) for loader in opened(address, 0)])
    again()
    loaders = opened(address, 0)
    got = in_threads(take, [(loader, STEPS) for loader in loaders])
    for loader in loaders:
        loader.state_dict()
    again()
    more = in_threads(take, [(loader, STEPS) for loader in loaders])
    assert [first + second for first, second in zip(got, more)] == want
    for loader in loaders:
        assert loader.stats.retries > 0
        loader.close()


@pytest.mark.parametrize("prefetch", [0, 2])
def test_ranks_that_do_not_are_told_so(restart, prefetch):
    """They waited for their state, the service for them to join, until the timeout."""
    address, again = restart
    loaders = opened(address, prefetch)
    in_threads(take, [(loader, STEPS) for loader in loaders])
    again()

    def drain(loader):
        began = time.monotonic()
        with pytest.raises(millrace.UserError, match="does not know the state of step") as caught:
            take(loader, 10 * STEPS)  # what was read ahead comes first
        assert "restart all ranks from the same checkpoint" in str(caught.value)
        assert time.monotonic() - began < session.WAIT_LOG_EVERY
        loader.close()

    in_threads(drain, [(loader,) for loader in loaders])
