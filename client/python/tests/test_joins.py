"""Ranks that join a job that runs: who may move it. Against the real service."""

from __future__ import annotations

import itertools
import json
import subprocess
import threading

import pytest
from processes import BINARY, needs_binary, real_service, write_job

import millrace
from millrace.messages import ResumeToken

pytestmark = needs_binary


def ranks(address, count, **options):
    """Returns the loaders of all ranks of a job."""
    given = {"dp_size": count, "timeout": 20, "prefetch": 0, **options}
    return [millrace.connect(address, dp_rank=dp, **given) for dp in range(count)]


def steps(loader, count):
    """Takes some whole steps; returns what came."""
    return [
        [next(loader)["tokens"].tobytes() for _ in range(loader.num_microbatches)]
        for _ in range(count)
    ]


def in_turn(loaders, count):
    """Has all ranks take some steps, one step after the other."""
    for _ in range(count):
        for loader in loaders:
            steps(loader, 1)


def both(loaders, work):
    """Runs work(loader) for all at once: without a token each waits for the others."""
    errors = []

    def run(loader):
        try:
            work(loader)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(loader,)) for loader in loaders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    if errors:
        raise errors[0]
    assert not any(thread.is_alive() for thread in threads), "a rank hangs"


def test_a_look_at_a_live_job_ends_nobody(tmp_path):
    with real_service(write_job(tmp_path)) as address:
        live = ranks(address, 2)
        in_turn(live, 4)
        looked, refused = threading.Event(), []

        def look():
            try:
                next(millrace.connect(address, dp_rank=0, dp_size=2))
            except millrace.UserError as error:
                refused.append(str(error))
            finally:
                looked.set()

        looking = threading.Thread(target=look)
        looking.start()
        while not looked.wait(0.05):
            in_turn(live, 1)
        looking.join()
        assert len({loader.step for loader in live}) == 1
        in_turn(live, 3)
        (text,) = refused
        for part in (
            "rank dp=0 cp=0 pp=0 tp=0 joined without a resume token",
            "the job is at step ",
            "nothing was changed",
            'start="beginning"',
            "millrace preview",
        ):
            assert part in text
        for loader in live:
            loader.close()


def test_all_ranks_may_begin_again_and_one_that_says_so(tmp_path):
    with real_service(write_job(tmp_path)) as address:
        first = ranks(address, 2)
        came = {}
        both(first, lambda loader: came.setdefault(id(loader), steps(loader, 5)))
        begin = [came[id(loader)] for loader in first]
        for loader in first:
            loader.close()

        again = ranks(address, 2)  # both without a token
        both(again, lambda loader: came.setdefault(id(loader), steps(loader, 4)))
        assert [came[id(loader)] for loader in again] == [part[:4] for part in begin]

        said = ranks(address, 2, start="beginning")  # the first that joins moves the job
        assert steps(said[0], 2) == begin[0][:2]
        with pytest.raises(millrace.UserError, match="moved to step 0"):
            steps(again[1], 1)
        assert steps(said[1], 2) == begin[1][:2]
        state = said[0].state_dict()
        said[0].load_state_dict(state)  # it has begun: a state is no contradiction now
        assert steps(said[0], 1) == begin[0][2:3]
        for loader in again + said:
            loader.close()


@pytest.mark.parametrize("order", list(itertools.permutations(range(4)))[::5], ids=str)
def test_ranks_restart_from_one_checkpoint_in_any_order(tmp_path, order):
    with real_service(write_job(tmp_path, dp=4)) as address:
        before = ranks(address, 4)
        in_turn(before, 3)
        states = [loader.state_dict() for loader in before]
        want = [steps(loader, 1 + dp % 3) for dp, loader in enumerate(before)]
        for loader in before:
            loader.close()
        after = ranks(address, 4)
        for dp in order:
            after[dp].load_state_dict(states[dp])
            assert steps(after[dp], 1 + dp % 3) == want[dp]
            steps(after[dp], 1)
        both(after, lambda loader: steps(loader, 8 - (loader.step or 0)))
        assert len({loader.state_dict()["token"] for loader in after}) == 1
        for loader in after:
            loader.close()


def test_a_lost_node_does_not_end_the_job(tmp_path):
    logged = ["--log-dir", str(tmp_path / "log")]
    with real_service(write_job(tmp_path, dp=4), flags=logged) as address:
        before = ranks(address, 4)
        in_turn(before, 3)
        saved = before[0].state_dict()
        in_turn(before, 4)
        for loader in before[2:]:
            loader.close()
        with pytest.raises(millrace.UserError, match="only a change of the topology starts"):
            millrace.change(address, {"pause": "notes"}, from_token=saved)
        found = millrace.state_at(address, 3)  # all are done with it: it is in the log
        assert (found["step"], found["microbatch"]) == (3, 0)
        for step, says in (
            (-1, "count up from 0"),
            (1 << 63, "step is 9223372036854775808: steps count up from 0"),
            (99, "not hold step 99: .* valid is a step from 0 to"),
        ):
            with pytest.raises(millrace.UserError, match=says):
                millrace.state_at(address, step)
        with pytest.raises(millrace.UserError, match="from_token is empty"):
            millrace.change(address, {"topology": {"dp": 2}}, from_token=b"")
        for given in (found, saved, saved["token"]):
            assert millrace.change(address, {"topology": {"dp": 2}}, from_token=given) == 3
        with pytest.raises(millrace.UserError, match="start the ranks of that mesh from it"):
            steps(before[0], 9)
        file = tmp_path / "token"
        flags = ["topology", address, "dp=2", "--from-step", "3", "--save-token", str(file)]
        subprocess.run([BINARY, *flags], check=True)
        after = ranks(address, 2)
        for loader in after:
            loader.load_state_dict(json.loads(file.read_text()))
        in_turn(after, 5)
        assert [loader.step for loader in after] == [7, 7]
        token = ResumeToken.decode(after[0].state_dict()["token"])
        for loader in before + after:
            loader.close()
    with real_service(write_job(tmp_path / "whole", dp=4)) as address:
        whole = ranks(address, 4)
        in_turn(whole, 8)
        same = ResumeToken.decode(whole[0].state_dict()["token"])
        assert (token.step, token.digest) == (same.step, same.digest)
        assert (token.mesh.dp, same.mesh.dp) == (2, 4)
        for loader in whole:
            loader.close()


@pytest.mark.parametrize("prefetch", [0, 2])
def test_survivors_go_on_as_a_smaller_mesh(tmp_path, prefetch):
    with real_service(write_job(tmp_path, dp=4)) as address:
        before = ranks(address, 4, prefetch=prefetch)
        in_turn(before, 4)
        survivors = [before[0], before[3]]  # the two between are lost, and say nothing any more
        for loader in survivors:
            steps(loader, 1)  # which their models do not learn from
        both(list(enumerate(survivors)), lambda at: at[1].remesh(4, dp_rank=at[0], dp_size=2))
        assert [loader.mesh.dp for loader in survivors] == [2, 2]
        survivors[1].remesh(4, dp_rank=1, dp_size=2)  # again it does nothing
        in_turn(survivors, 3)
        saved = survivors[0].state_dict()
        both(list(enumerate(survivors)), lambda at: at[1].remesh(7, dp_rank=at[0], dp_size=4))
        come = ranks(address, 4)[2:]
        for loader in come:
            loader.load_state_dict(saved)
        in_turn([*survivors, *come], 2)
        token = ResumeToken.decode(survivors[0].state_dict()["token"])
        for loader in [*before, *come]:
            loader.close()
    with real_service(write_job(tmp_path / "whole", dp=4)) as address:
        whole = ranks(address, 4)
        in_turn(whole, 9)
        same = ResumeToken.decode(whole[0].state_dict()["token"])
        assert (token.step, token.digest) == (same.step, same.digest)
        for loader in whole:
            loader.close()


def test_a_mesh_that_cannot_be_is_refused(tmp_path):
    with real_service(write_job(tmp_path, dp=4)) as address:
        loaders = ranks(address, 4)
        in_turn(loaders, 4)
        for step, places, says in [
            (3, {"dp_rank": 0}, "give the size of an axis that changes"),
            (3, {"ep_size": 2}, "ep_size is not a place in a mesh"),
            (3, {"dp_rank": 2, "dp_size": 2}, "ranks of this axis go from 0 to 1"),
            (3, {"dp_rank": 1 << 32, "dp_size": 2}, "dp_rank is 4294967296"),
            (3, {"dp_rank": 0, "dp_size": (1 << 32) + 2}, "dp_size is 4294967298: valid is"),
            (3, {"dp_rank": 0, "dp_size": 5}, "dp"),
            (-1, {"dp_rank": 0, "dp_size": 2}, "steps count up from 0"),
            (1 << 64, {"dp_rank": 0, "dp_size": 2}, "steps count up from 0"),
            (2, {"dp_rank": 0, "dp_size": 2}, "is gone: all trainers said"),
            ("x", {"dp_rank": 0, "dp_size": 2}, "give a whole number"),
        ]:
            with pytest.raises(millrace.UserError, match=says):
                loaders[0].remesh(step, **places)
        in_turn(loaders, 1)  # nothing was changed
        for loader in loaders:
            loader.close()


def test_start_is_checked():
    with pytest.raises(millrace.UserError, match="start is 'begining': give 'beginning'"):
        millrace.connect("127.0.0.1:1", dp_rank=0, start="begining")
    loader = millrace.connect("127.0.0.1:1", dp_rank=0, start="beginning")
    with pytest.raises(millrace.UserError, match="leave start out"):
        loader.load_state_dict({"version": 1, "step": 4, "microbatch": 0, "token": b"x"})
