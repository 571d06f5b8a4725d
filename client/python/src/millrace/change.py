"""Changes to a running job, as an operator or a trainer makes them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from millrace import messages, rpc, state
from millrace.access import Access
from millrace.config import TLS, parse_identity, pick_address
from millrace.errors import BugError, LostError, UserError, with_code
from millrace.wire import WireError


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
        start from when others are lost. The change applies at that step, though it is
        planned long since: what later steps were is void. Asked for again it does nothing.
    address, identity, tls_*, access_key_file: as for connect(); None is $MILLRACE_ADDR.
    timeout: seconds; a source that is added is indexed first, which takes its time.

    The change is durable when this returns. It is asked for once: after LostError it may
    have been made or not, and ``millrace status`` lists the changes that were.
    Raises UserError for a change that the job cannot make.
    """
    tls = TLS(tls_ca, tls_cert, tls_key)
    tls.check()
    address = pick_address(address)
    request = messages.ChangeRequest(_json(change), parse_identity(identity), _token(from_token))
    what = f"changing the job at {address}"
    channel = rpc.open_channel(address, tls, Access(address, access_key_file, tls.used()))
    try:
        method = messages.PLANNER + "Change"
        raw = rpc.call_unary(channel, method, request.encode(), timeout, what)
        return messages.ChangeReply.decode(raw).step
    except LostError as error:
        text = f"{error}; it may have been made: see the changes of `millrace status`"
        raise with_code(LostError(text), error.code) from None
    except WireError as error:
        raise BugError(f"{what}: reading the answer: {error}") from error
    finally:
        channel.close()


def _token(given: bytes | Mapping[str, Any] | None) -> bytes:
    if given is None:
        return b""
    if not given:
        raise UserError("from_token is empty: give a token or what state_dict() returned")
    token: bytes = state.checked(dict(given))["token"] if isinstance(given, Mapping) else given
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
