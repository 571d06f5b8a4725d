"""Changes to a running job, as an operator or a trainer makes them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeVar

from millrace import messages, rpc, state
from millrace.access import Access
from millrace.config import TLS, check_path, parse_identity, pick_address, seconds, step_number
from millrace.errors import BugError, LostError, UserError, with_code
from millrace.planners import serving
from millrace.wire import Message, WireError

M = TypeVar("M", bound=Message)


def change(
    address: str | None,
    change: Mapping[str, Any] | str,
    *,
    from_token: bytes | Mapping[str, Any] | None = None,
    identity: str | bytes | None = None,
    timeout: float = 600.0,
    tls_ca: str | None = None,
    tls_cert: str | None = None,
    tls_key: str | None = None,
    access_key_file: str | None = None,
) -> int:
    """Changes the job served at address. Returns the first step that the change applies to.

        millrace.change("planner:7070", {"weights": {"web": 0.7, "code": 0.3}})
        millrace.change("planner:7070", {"step": 5000, "topology": {"dp": 64}})

    change: one thing to change, as in a change file: weights, schedule, pause, resume, drop,
        add, sequence_length and sequences, topology, skip, ban or cancel; a mapping, or its JSON.
        Without "step" it applies as soon as it can: after the steps that are planned. One that
        is made before the first rank has connected waits for it.
    from_token: for a topology, the token, or the state_dict(), of the checkpoint that its ranks
        start from when others are lost; state_at() has that of a step. No state of the middle of
        a step: see Loader.load_state_dict(). The change applies at
        that step, though it is planned long since: what later steps were is void. Asked for
        again it does nothing.
    address, identity, tls_*, access_key_file: as for connect(); None is $MILLRACE_ADDR.
    timeout: seconds; a source that is added is indexed first, which takes its time.

    The change is durable when this returns. It is asked for once: after LostError it may
    have been made or not, and ``millrace status`` lists the changes that were.
    Raises UserError for a change that the job cannot make.
    """
    tls = TLS(tls_ca, tls_cert, tls_key)
    address, limit = pick_address(address), seconds("timeout", timeout)
    request = messages.ChangeRequest(_json(change), parse_identity(identity), _token(from_token))
    address = serving(address, tls, access_key_file, limit)
    what = f"changing the job at {address}"
    try:
        reply = messages.ChangeReply
        return _ask("Change", request, reply, address, tls, access_key_file, limit, what).step
    except LostError as error:
        text = f"{error}; it may have been made: see the changes of `millrace status`"
        raise with_code(LostError(text), error.code) from None


def state_at(
    address: str | None,
    step: int,
    *,
    identity: str | bytes | None = None,
    timeout: float = 600.0,
    tls_ca: str | None = None,
    tls_cert: str | None = None,
    tls_key: str | None = None,
    access_key_file: str | None = None,
) -> state.State:
    """Returns what state_dict() was after ``step`` whole steps of the job served at address.

        saved = millrace.state_at("planner:7070", 1500)
        loader.load_state_dict(saved)
        millrace.change("planner:7070", {"topology": {"dp": 2}}, from_token=saved)

    For a checkpoint of which nothing but the step is known. The service takes the step out of
    its log, however long ago it was; without a log it holds those only that not all ranks are
    done with. It asks no rank and moves nothing. The other arguments are those of change().
    Raises UserError, which says which steps are held, for one that is not.
    """
    step = step_number("step", step)
    tls = TLS(tls_ca, tls_cert, tls_key)
    address, limit = pick_address(address), seconds("timeout", timeout)
    request = messages.StateRequest(parse_identity(identity), step, past=True)
    address = serving(address, tls, access_key_file, limit)
    what = f"asking the service at {address} for the state of step {step}"
    reply = messages.StateReply
    answer = _ask("State", request, reply, address, tls, access_key_file, limit, what)
    if not answer.token:
        raise BugError(f"{what}: the answer has no token")
    return state.make(step, 0, answer.token)


def _ask(
    method: str,
    request: Message,
    reply: type[M],
    address: str,
    tls: TLS,
    access_key_file: str | None,
    limit: float,
    what: str,
) -> M:
    """Asks the planner at address, over a connection of its own, for ``limit`` seconds at most."""
    tls.check()
    check_path("access_key_file", access_key_file)
    channel = rpc.open_channel(address, tls, Access(address, access_key_file, tls.used()))
    try:
        method = messages.PLANNER + method
        return reply.decode(rpc.call_unary(channel, method, request.encode(), limit, what))
    except WireError as error:
        raise BugError(f"{what}: reading the answer: {error}") from error
    finally:
        channel.close()


def _token(given: bytes | Mapping[str, Any] | None) -> bytes:
    if given is None:
        return b""
    if not isinstance(given, (bytes, bytearray, memoryview, Mapping)):
        raise UserError(f"from_token is {given!r}: give a token or what state_dict() returned")
    if not given:
        raise UserError("from_token is empty: give a token or what state_dict() returned")
    if not isinstance(given, Mapping):
        return bytes(given)
    saved = state.checked(dict(given))
    if saved["microbatch"]:
        raise UserError(
            f"from_token is a state in the middle of step {saved['step']}, of which "
            f"{saved['microbatch']} microbatches were returned: a topology changes between steps. "
            "Give a state that was saved where loader.position[1] == 0"
        )
    token: bytes = saved["token"]
    return token


def _json(change: Mapping[str, Any] | str) -> bytes:
    if isinstance(change, str):
        return change.encode()
    try:
        return json.dumps(dict(change), allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise UserError(
            f'the change has no JSON form: {error}; valid is such as {{"pause": "web"}}'
        ) from error
