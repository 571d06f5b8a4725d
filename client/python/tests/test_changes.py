"""Changes of a running job: made, met by a rank, and what a rank reports to steer the mix."""

from __future__ import annotations

import copy
import json
import pickle
import time

import grpc
import numpy as np
import pytest
from conftest import check_batch, take
from fake import IDENTITY, Fault

import millrace
from millrace import BugError, LostError, TopologyChanged, UserError, rank

PREFETCH = pytest.mark.parametrize("prefetch", [0, 2])
NEXT = {"tp": 1, "cp": 1, "dp": 1, "pp": 2, "vpp": 2}
NEXT_TEXT = " ".join(f"{axis}{size}" for axis, size in NEXT.items())


# ---- another mesh ----


@PREFETCH
@pytest.mark.parametrize("steps", [0, 3])
def test_a_rank_goes_on_in_the_new_mesh(serve, open_loader, prefetch, steps):
    before = serve(steps=steps)
    before.topology = NEXT_TEXT
    loader = open_loader(before, prefetch=prefetch)
    take(loader, 2 * steps)
    for ask in (loader.__next__, loader.upcoming, loader.__next__):
        with pytest.raises(TopologyChanged) as caught:
            ask()
        assert (caught.value.step, caught.value.topology) == (steps, NEXT)
    assert not loader.end  # the data goes on
    assert before.acked == steps  # the service knows that all was used
    state = loader.state_dict()
    assert (state["step"], state["microbatch"]) == (steps, 0)
    loader.close()

    after = serve(mesh=(1, 1, 2, 1, 2))
    old = open_loader(after, prefetch=prefetch, dp_size=2)
    old.load_state_dict(state)
    with pytest.raises(UserError, match="dp is 1"):
        next(old)
    for pp in range(2):
        loader = open_loader(after, prefetch=prefetch, dp_size=1, pp_rank=pp, pp_size=2)
        loader.load_state_dict(state)
        check_batch(after, next(loader), steps, 0, (0, 0, pp, 0))
        assert loader.mesh.pp == 2


def test_a_state_from_before_meets_the_change_again(serve, open_loader):
    service = serve(steps=2)
    service.topology = NEXT_TEXT
    loader = open_loader(service)
    take(loader, 3)
    state = loader.state_dict()
    for _ in range(2):
        take(loader, 1)
        with pytest.raises(TopologyChanged):
            next(loader)
        loader.load_state_dict(state)
        assert loader.state_dict() == state


def test_all_ranks_meet_the_change_at_one_step(serve, open_loader):
    service = serve(steps=3, mesh=(4, 1, 1, 1, 1))
    service.topology = NEXT_TEXT
    states = []
    for dp in range(4):
        loader = open_loader(service, dp_rank=dp, prefetch=dp)
        with pytest.raises(TopologyChanged, match="at step 3"):
            take(loader, 100)
        states.append(loader.state_dict())
    assert all(state == states[0] for state in states)


@pytest.mark.parametrize("text", ["dp", "dp2:", "2dp", "dp2,tp1", "\n"])
def test_a_topology_that_is_none(serve, open_loader, text):
    service = serve(steps=0)
    service.topology = text
    with pytest.raises(BugError, match="topology"):
        next(open_loader(service))


def test_the_error_travels():
    """Through pickle, and as the text of a traceback, which is all a worker sends."""
    error = TopologyChanged.at(7, "tp2 cp1 dp4 pp2")
    traceback = f"Caught TopologyChanged in a worker.\n  raise TopologyChanged.at(...)\n{error}\n"
    for made in (pickle.loads(pickle.dumps(error)), copy.copy(error), TopologyChanged(traceback)):
        assert (made.step, made.topology) == (7, {"tp": 2, "cp": 1, "dp": 4, "pp": 2})
    assert "save the state" in str(error)


def test_a_rank_that_runs_alone_saves_and_says_so(serve, tmp_path, capsys):
    service = serve(steps=2)
    service.topology = NEXT_TEXT
    out, save = tmp_path / "out.json", tmp_path / "state.json"
    where = ["--address", service.address, "--dp-rank", "1"]
    assert rank.main([*where, "--json", str(out), "--save", str(save)]) == 0
    summary = json.loads(out.read_text())
    assert summary["topology"] == NEXT and not summary["end_of_data"]
    assert json.loads(save.read_text())["step"] == 2
    assert "the topology changes at step 2" in capsys.readouterr().err


# ---- other shapes, more sources ----


@PREFETCH
def test_shape_and_sources_of_the_last_step(serve, open_loader, prefetch):
    service = serve()
    service.joined = [(1, "maths"), (3, "proofs")]
    service.lengths = {2: 32}
    loader = open_loader(service, prefetch=prefetch)
    assert (loader.sequence_length, loader.rows) == (None, None)
    seen = []
    for _ in range(4):
        upcoming = loader.upcoming()
        for microbatch in range(2):
            next(loader)
            assert loader.lineage == upcoming[microbatch]
            assert loader.lineage[0].segments[1].source == loader.sources[-1]
        seen.append((loader.sequence_length, loader.rows, loader.sources[2:]))
        assert loader.num_microbatches == 2
    assert seen == [
        (64, 8, []),
        (64, 8, ["maths"]),
        (32, 8, ["maths"]),
        (64, 8, ["maths", "proofs"]),
    ]
    state = loader.state_dict()
    loader.load_state_dict(state)
    assert loader.sequence_length is None and loader.sources == ["web", "code"]
    next(loader)
    assert loader.sources == ["web", "code", "maths", "proofs"]


def test_the_number_of_microbatches_may_change(serve, open_loader):
    service = serve(microbatches=2)
    loader = open_loader(service, prefetch=0)
    assert loader.num_microbatches == 2
    take(loader, 2)
    service.microbatches = 3
    take(loader, 3)
    assert (loader.num_microbatches, loader.position) == (3, (2, 0))


# ---- making a change ----


def test_change(serve):
    service = serve()
    asked = {"weights": {"web": 0.25, "code": np.float64(0.75)}, "reason": "more code"}
    assert millrace.change(service.address, asked) == 8
    text = '{"step": 100, "pause": "web"}'
    assert millrace.change(service.address, text, identity=IDENTITY.hex()) == 100
    first, second = service.requests("Change")
    assert json.loads(first.change) == asked and first.identity == b""
    assert second.change == text.encode() and second.identity == IDENTITY


def test_change_at_the_address_of_the_environment(serve, monkeypatch):
    service = serve()
    monkeypatch.setenv("MILLRACE_ADDR", service.address)
    assert millrace.change(None, {"schedule": True}) == 8
    monkeypatch.delenv("MILLRACE_ADDR")
    with pytest.raises(UserError, match="MILLRACE_ADDR"):
        millrace.change(None, {"schedule": True})


@pytest.mark.parametrize(
    ("change", "options", "words"),
    [
        ({"paus": "web"}, {}, "did you mean"),
        ({"weights": {"web": float("nan")}}, {}, "no JSON form"),
        ({"weights": {"web": object()}}, {}, "no JSON form"),
        ({"pause": "web"}, {"identity": "xyz"}, "hexadecimal"),
        ({"pause": "web"}, {"tls_key": "a"}, "go together"),
        ({"pause": "web"}, {"tls_ca": "/nowhere.pem"}, "TLS file"),
    ],
)
def test_changes_that_are_refused(serve, change, options, words):
    with pytest.raises(UserError, match=words):
        millrace.change(serve().address, change, **options)


def test_a_topology_begins_at_no_middle_of_a_step(serve, open_loader):
    service = serve()
    loader = open_loader(service)
    change = {"topology": {"dp": 1}}
    next(loader)
    with pytest.raises(UserError, match=r"in the middle of step 0, of which 1 microbatches"):
        millrace.change(service.address, change, from_token=loader.state_dict())
    next(loader)
    saved = loader.state_dict()
    for given in (saved, saved["token"]):
        millrace.change(service.address, change, from_token=given)
    assert [request.token for request in service.requests("Change")] == [saved["token"]] * 2


def test_a_change_is_asked_for_once(serve):
    """Asking again could make it twice."""
    service = serve()
    service.faults = [("Change", None, Fault(grpc.StatusCode.UNAVAILABLE, "gone"))]
    with pytest.raises(LostError, match=r"gone .*it may have been made") as caught:
        millrace.change(service.address, {"skip": 5})
    assert caught.value.code == "UNAVAILABLE" and service.count("Change") == 1


# ---- reporting ----


@PREFETCH
def test_report(serve, open_loader, prefetch):
    service = serve()
    loader = open_loader(service, dp_rank=1, prefetch=prefetch)
    take(loader, 3)
    loader.report({"web": np.float32(2.5), "code": 1}, {"code": 300, "web": 700}, step_seconds=0.25)
    loader.report({}, step_seconds=1)
    loader.report({"web": 2.0}, step=0)
    full, timed, early = service.requests("Report")
    assert (full.identity, full.step, full.rank.dp) == (IDENTITY, 1, 1)
    assert (full.sources, full.losses, full.tokens) == (["code", "web"], [1.0, 2.5], [300, 700])
    assert full.step_seconds == 0.25
    assert (timed.sources, timed.losses, timed.step_seconds) == ([], [], 1.0)
    assert (early.step, early.tokens, early.step_seconds) == (0, [0], 0.0)
    check_batch(service, next(loader), 1, 1, (1, 0, 0, 0))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (({},), "empty"),
        (({"web": float("nan")},), "'web' is nan"),
        (({"web": 1.0}, {"code": 5}), r"\['code'\].*\['web'\]"),
        (({"web": 1.0}, {"web": -5}), "tokens of source 'web' are -5"),
        (
            ({"web": 1.0}, {"web": 1 << 64}),
            "tokens of source 'web' are 18446744073709551616: valid",
        ),
        (({"web": 10**400},), "loss of source 'web' is 1000"),
        (({}, None, 0.0), "step_seconds"),
        (({}, None, float("inf")), "step_seconds"),
        (({}, None, "fast"), "step_seconds is 'fast': give a number"),
        (({"web": "low"},), "loss of source 'web' is 'low'"),
        (([1.0],), "by source"),
        (({"web": 1.0}, {"web": 1.5}), "tokens of source 'web' is 1.5: give a whole number"),
        (({"web": 1.0}, {"web": "x"}), "whole number"),
    ],
)
def test_reports_that_cannot_be_right(serve, open_loader, arguments, words):
    service = serve()
    loader = open_loader(service)
    next(loader)
    with pytest.raises(UserError, match=words):
        loader.report(*arguments)
    assert service.count("Report") == 0


@pytest.mark.parametrize("step", [-1, 2.5, "3", 1 << 64])
def test_a_report_of_a_step_that_cannot_be(serve, open_loader, step):
    loader = open_loader(serve())
    with pytest.raises(UserError, match="step is "):
        loader.report({"web": 1.0}, step=step)


def test_a_report_needs_a_step(serve, open_loader):
    with pytest.raises(UserError, match="no step to report on"):
        open_loader(serve()).report({"web": 1.0})


def test_a_loader_that_only_reports_never_joins(serve, open_loader):
    """A worker has the rank; joining here would move the job from under it."""
    service = serve()
    loader = open_loader(service, identity=IDENTITY)
    loader.load_state_dict({"version": 1, "step": 4, "microbatch": 1, "token": service.token(4)})
    loader.report({"web": 1.0}, step=9)
    assert pickle.loads(pickle.dumps(loader)).state_dict() == loader.state_dict()
    assert [name for name, _ in service.asked] == ["Report"]
    (request,) = service.requests("Report")
    assert (request.identity, request.step) == (IDENTITY, 9)


def test_a_lost_report_leaves_the_loader_as_it_was(serve, open_loader):
    service = serve()
    loader = open_loader(service)
    next(loader)
    gone = Fault(grpc.StatusCode.UNAVAILABLE, "gone")
    service.faults = [("Report", None, gone)] * 2
    loader.report({"web": 1.0})  # made again
    assert service.count("Report") == 3
    service.patient.clear()
    began = time.monotonic()
    with pytest.raises(LostError, match=r"rank dp=0 .* reporting step 0"):
        loader.report({"web": 1.0}, timeout=0.2)
    assert time.monotonic() - began < 5
    service.patient.set()
    refused = Fault(grpc.StatusCode.INVALID_ARGUMENT, "there is no source wbe")
    service.faults = [("Report", 7, refused)]  # of a step of its own: the last one may come late
    with pytest.raises(UserError, match="no source wbe"):
        loader.report({"wbe": 1.0}, step=7)
    check_batch(service, next(loader), 0, 1)
    loader.report({"web": 1.0})
