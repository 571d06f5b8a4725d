"""How a trainer opens its loader."""

from __future__ import annotations

import os
from collections.abc import Iterable

from millrace.config import (
    TLS,
    Config,
    Rank,
    parse_identity,
    parse_tensors,
    pick_address,
    text,
    whole,
)
from millrace.errors import UserError
from millrace.loader import Loader
from millrace.shared import DIR


def connect(
    address: str | None = None,
    *,
    job: str | None = None,
    identity: str | bytes | None = None,
    dp_rank: int | None = None,
    dp_size: int | None = None,
    dp_world_size: int | None = None,
    cp_rank: int | None = None,
    cp_size: int | None = None,
    pp_rank: int | None = None,
    pp_size: int | None = None,
    tp_rank: int | None = None,
    tp_size: int | None = None,
    vpp_size: int | None = None,
    start: str | None = None,
    prefetch: int = 2,
    timeout: float = 600.0,
    stall_timeout: float = 40.0,
    tls_ca: str | None = None,
    tls_cert: str | None = None,
    tls_key: str | None = None,
    access_key_file: str | None = None,
    way: str | None = None,
    shared_dir: str | None = None,
    tensors: Iterable[str] | None = None,
) -> Loader:
    """Returns the loader of one rank. It connects at its first use.

    address: host:port of the planner; default $MILLRACE_ADDR. Commas separate the addresses of
        planners that may take its place: each is tried in turn.
    job, identity: refuse a service that serves another job, or another spec.
    *_rank: this rank's coordinates. An axis that is left out counts as rank 0;
        if the job has several ranks on it, joining is refused. dp_rank may be
        left out only with dp_size=1.
    *_size: the sizes this trainer believes in; refuse a job with others.
        dp_world_size is another name of dp_size.
    start: "beginning" has the whole job begin again at its first step, wherever it is, and ends
        the ranks that go on. Without it, and without load_state_dict(), a rank begins at the
        first step if the job is there. If it is further, the rank waits for all others to
        join so, too, and is refused with UserError when they go on. One that loads a state
        leaves start out.
    prefetch: whole steps kept ready beside the one in use; 0 asks for each step
        when it is wanted. More than 1024 are refused.
    timeout: seconds that one call may wait at all, as for other ranks, before it raises
        WaitError, which is a LostError.
    stall_timeout: seconds that one call may wait while nothing moves anywhere in the service,
        or nobody answers, before it raises WaitError; float("inf") for no such limit. Its text
        names who waits for whom.
    tls_*: paths of PEM files. With tls_ca or tls_cert the connections use TLS.
    access_key_file: path of the service's access key; default $MILLRACE_ACCESS_KEY_FILE,
        or the key itself in $MILLRACE_ACCESS_KEY, or what a service of the same user on
        this machine has left.
    way: how batches come: "shared", in memory of a constructor on this machine, or through its
        socket while there is no such memory (its status says so, and why), "stream", on one
        stream for all steps, or "calls", by a call for each. Default the best that is possible.
        It decides no byte of them.
    shared_dir: folder of the constructor's socket as this process sees it; "none" maps no
        memory. Default $MILLRACE_SHARED_DIR, or as the constructor says.
    tensors: names of the tensors that a batch has, such as ["tokens", "labels"]: the others are
        not made, which saves their memory and the time to fill it. A name that the batches of
        no pipeline stage have raises UserError at the first one; of the others, a stage gets
        those of its own. Default all.

    Raises UserError for arguments that cannot be right.
    """
    if None not in (dp_size, dp_world_size) and dp_size != dp_world_size:
        raise UserError(f"dp_size is {dp_size}, but dp_world_size is {dp_world_size}: give one")
    config = Config(
        address=pick_address(address),
        job=text("job", job),
        identity=parse_identity(identity),
        dp=Rank.of("dp", dp_rank, dp_world_size if dp_size is None else dp_size),
        cp=Rank.of("cp", cp_rank, cp_size),
        pp=Rank.of("pp", pp_rank, pp_size),
        tp=Rank.of("tp", tp_rank, tp_size),
        vpp_size=None if vpp_size is None else whole("vpp_size", vpp_size),
        prefetch=whole("prefetch", prefetch),
        timeout=timeout,
        stall_timeout=stall_timeout,
        tls=TLS(tls_ca, tls_cert, tls_key),
        start="" if start is None else start,
        access_key_file=access_key_file,
        way="" if way is None else way,
        shared_dir=os.environ.get(DIR, "") if shared_dir in (None, "") else shared_dir,
        tensors=parse_tensors(tensors),
    )
    return Loader(config)
