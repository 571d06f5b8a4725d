"""The planner of a running job is killed and started again at the same address."""

from __future__ import annotations

import pytest
from processes import Roles, needs_binary, write_job
from test_service import in_threads, plain, ranks_of

import millrace

pytestmark = needs_binary

STEPS = 8  # more than are planned ahead
PER_STEP = 2  # microbatches


def opened(address, prefetch):
    places = ranks_of({"dp": 2})
    return [millrace.connect(address, prefetch=prefetch, timeout=60, **place) for place in places]


def take(loader, steps):
    return [plain(next(loader)) for _ in range(steps * PER_STEP)]


def taken(folder, prefetch, lives):
    """What two ranks get, whose planner is started again after each life but the last."""
    folder.mkdir()
    roles = Roles(write_job(folder, dp=2))
    try:
        loaders = opened(roles.address, prefetch)
        got = [[] for _ in loaders]
        for life in range(lives):
            if life:
                roles.restart_planner()
            steps = 3 * STEPS // lives
            for all_of, new in zip(got, in_threads(take, [(loader, steps) for loader in loaders])):
                all_of += new
        states = [loader.state_dict() for loader in loaders]
        for loader in loaders:
            loader.close()
        return got, states
    finally:
        roles.stop()


@pytest.mark.parametrize("prefetch", [0, 2])
def test_ranks_go_on(tmp_path, prefetch):
    """They saved no state, and are neither told nor moved: all they get is as it was."""
    assert taken(tmp_path / "a", prefetch, 3) == taken(tmp_path / "b", prefetch, 1)
