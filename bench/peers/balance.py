"""Packs and balances the samples of served plans with other projects' code, beside ours.

The plans come from bench/peers/plans. What others do is their own code, read from their wheels
and run as it is: verl's Karmarkar-Karp partition, Megatron-Core's schedule for hybrid context
parallelism, TRL's best-fit-decreasing packing. Modules that these files import and that the
functions called here do not use (torch, the rest of each project) are empty stand-ins, so that no
wheel of gigabytes is needed. What cannot be had is named and left out.

    python balance.py --plans plans.json --wheels FOLDER [--markdown OUT]
"""

from __future__ import annotations

import argparse
import glob
import json
import os
import sys
import time
import types
import zipfile
from typing import Any

Plan = dict[str, Any]  # as bench/peers/plans prints it


class StandIn(types.ModuleType):
    """A module any of whose attributes is another one."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__ = []

    def __getattr__(self, name: str) -> StandIn:
        if name.startswith("__"):
            raise AttributeError(name)
        return StandIn(name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return args[0] if args and callable(args[0]) else self

    def __getitem__(self, key: Any) -> StandIn:
        return self

    def __or__(self, other: Any) -> StandIn:
        return self

    __ror__ = __or__


def load(wheels: str, project: str, path: str, stand_ins: list[str]) -> Any:
    """Returns the module at path of a project's wheel; None, with a message, without one."""
    found = glob.glob(os.path.join(wheels, project + "-*.whl"))
    if not found:
        print(f"skipped: {project} could not be installed (no wheel in {wheels})", file=sys.stderr)
        return None
    text = zipfile.ZipFile(found[0]).read(path)
    before = {name: sys.modules.get(name) for name in stand_ins}
    sys.modules.update({name: StandIn(name) for name in stand_ins})
    module: Any = types.ModuleType(os.path.basename(path)[:-3])
    try:
        exec(compile(text, path, "exec"), module.__dict__)
    except Exception as e:  # a version that needs more than it did
        print(f"skipped: {os.path.basename(found[0])}: {path}: {e!r}", file=sys.stderr)
        return None
    finally:
        for name, old in before.items():
            sys.modules.pop(name)
            if old is not None:
                sys.modules[name] = old
    module.version = os.path.basename(found[0]).split("-")[1]
    return module


def cost(plan: Plan, tokens: int) -> int:
    """What a sample costs, as the plan has it."""
    return int(plan["a"]) * tokens + tokens * tokens


def over_mean(loads: list[Any]) -> float:
    return float(max(loads) * len(loads) / sum(loads))


def verl(module: Any, plan: Plan) -> dict[str, Any]:
    """Ranks by cost, and microbatches by cost: how many of these are over the cap."""
    costs = [cost(plan, n) for n in plan["tokens"]]
    began = time.process_time()
    ranks = module.get_seqlen_balanced_partitions(costs, plan["ranks"], False)
    took = time.process_time() - began
    micro = module.get_seqlen_balanced_partitions(costs, plan["rows"], False)
    tokens = [sum(plan["tokens"][i] for i in part) for part in micro]
    over = sum(n > plan["capacity"] for n in tokens)
    return {
        "over ranks": over_mean([sum(costs[i] for i in part) for part in ranks]),
        "over slots": None,
        "rows": f"{plan['rows']}, of which {over} over the cap, "
        f"up to {max(tokens) / plan['capacity']:.2f} times",
        "CPU ms": took * 1000,
    }


def trl(module: Any, plan: Plan) -> dict[str, Any]:
    """Rows for the samples; row i goes to rank i mod ranks, as a sampler over ranks has it."""
    import pyarrow as pa

    columns = pa.array([[0] * n for n in plan["tokens"]], type=pa.list_(pa.int32()))
    began = time.process_time()
    packed = module._pack_bfd(pa.table({"input_ids": columns}), plan["capacity"])
    took = time.process_time() - began
    ranks: list[int] = [0] * plan["ranks"]
    slots: dict[int, int] = {}
    for i, lengths in enumerate(packed["seq_lengths"].to_pylist()):
        load = sum(cost(plan, n) for n in lengths)
        ranks[i % plan["ranks"]] += load
        slots[i // plan["ranks"]] = max(slots.get(i // plan["ranks"], 0), load)
    return {
        "over ranks": over_mean(ranks),
        "over slots": sum(slots.values()) * len(ranks) / sum(ranks),
        "rows": str(len(packed)),
        "CPU ms": took * 1000,
    }


def megatron(module: Any, plan: Plan) -> dict[str, Any]:
    """Groups of samples that all ranks run before they wait for each other."""
    scheduler = object.__new__(module.BalancedCPScheduler)
    scheduler.max_seq_len_per_rank, scheduler.total_hdp_gpus = plan["capacity"], plan["ranks"]
    began = time.process_time()
    _, groups = scheduler.get_groups_and_subsamples(list(enumerate(plan["tokens"])), None)
    took = time.process_time() - began
    ranks, lockstep, most = [0.0] * plan["ranks"], 0.0, 0.0
    for group in groups:
        width: dict[int, int] = {}
        loads, held = [0.0] * plan["ranks"], [0.0] * plan["ranks"]
        for mine in group:
            for i in mine:
                width[i] = width.get(i, 0) + 1
        for rank, mine in enumerate(group):
            for i in mine:
                loads[rank] += cost(plan, plan["tokens"][i]) / width[i]
                held[rank] += plan["tokens"][i] / width[i]
        lockstep, most = lockstep + max(loads), max(most, *held)
        ranks = [a + b for a, b in zip(ranks, loads)]
    return {
        "over ranks": over_mean(ranks),
        "over slots": lockstep * len(ranks) / sum(ranks),
        "rows": f"{len(groups)} groups of up to {most / plan['capacity']:.1f} rows' tokens a rank",
        "CPU ms": took * 1000,
    }


def ours(plan: Plan) -> dict[str, Any]:
    return {
        "over ranks": plan["overRanks"],
        "over slots": plan["overSlots"],
        "least": f"{plan['leastRank']:.4f}, {plan['leastSlot']:.4f}",
        "rows": f"{plan['rows']}, {100 * plan['full']:.2f} % full at fill {plan['fill']}",
        "CPU ms": plan["millis"],
    }


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--plans", required=True)
    arguments.add_argument("--wheels", required=True)
    arguments.add_argument("--markdown")
    a = arguments.parse_args()
    torch = ["torch", "torch.distributed"]
    of_verl = [*torch, "verl", "verl.protocol", "verl.utils", "verl.utils.device"]
    of_megatron = [*torch, "megatron", "megatron.core", "megatron.core.rerun_state_machine"]
    schedule = "megatron/core/pipeline_parallel/hybrid_cp_schedule.py"
    peers = {
        "verl": (verl, load(a.wheels, "verl", "verl/utils/seqlen_balancing.py", of_verl), False),
        "TRL": (
            trl,
            load(a.wheels, "trl", "trl/data_utils.py", ["datasets", "transformers"]),
            False,
        ),
        "Megatron-Core": (megatron, load(a.wheels, "megatron_core", schedule, of_megatron), True),
    }
    with open(a.plans) as f:
        plans = json.load(f)
    lines = [
        "| input | who | largest rank / mean | slots / mean | least of these rows | rows "
        "| CPU ms |",
        "|---|---|--:|--:|--:|---|--:|",
    ]
    for plan in plans:
        rows = [("Millrace, served", ours(plan))]
        for name, (run, module, wide) in peers.items():
            if module is not None and wide == (plan["widest"] > 1):
                rows.append((f"{name} {module.version}", run(module, plan)))
        for who, r in rows:
            slots = "-" if r["over slots"] is None else f"{r['over slots']:.4f}"
            given = f"{plan['name']}: {len(plan['tokens'])} samples, {plan['ranks']} ranks"
            lines.append(
                f"| {given} | {who} | {r['over ranks']:.4f} | {slots} | {r.get('least', '-')} "
                f"| {r['rows']} | {r['CPU ms']:.0f} |"
            )
    table = "\n".join(lines) + "\n"
    sys.stdout.write(table)
    if a.markdown:
        with open(a.markdown, "w") as f:
            f.write(table)


if __name__ == "__main__":
    main()
