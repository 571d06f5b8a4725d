"""A small model on the real service's batches: packed or not, its loss is the same.

The model is plain PyTorch, one layer of attention in float64. It sees a batch as the
format's trainer does: by positions, by bounds, in the slices of context parallelism.
"""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch")

from processes import needs_binary, real_service, write_job  # noqa: E402
from torch.nn.functional import cross_entropy  # noqa: E402

import millrace  # noqa: E402
import millrace.torchtitan  # noqa: E402

pytestmark = needs_binary

VOCABULARY, ROW, WIDTH, BATCHES = 257, 128, 16, 4


class Model(torch.nn.Module):
    """One layer of causal attention among tokens of one segment."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.tokens = torch.nn.Embedding(VOCABULARY, WIDTH)
        self.positions = torch.nn.Embedding(2 * ROW, WIDTH)
        self.attention = torch.nn.Linear(WIDTH, 3 * WIDTH)
        self.head = torch.nn.Linear(WIDTH, VOCABULARY)
        self.double()

    def forward(self, ids, positions, segments):
        x = self.tokens(ids) + self.positions(positions)
        q, k, v = self.attention(x).chunk(3, dim=-1)
        seen = torch.tril(segments[:, None] == segments[None, :])
        scores = (q @ k.T / math.sqrt(WIDTH)).masked_fill(~seen, -math.inf)
        return self.head(x + scores.softmax(-1) @ v)


def by_positions(positions):
    """Returns the segments that restarting positions tell, as FlashAttention and torchtitan do."""
    return (positions == 0).cumsum(0)


def loss_of(logits, labels):
    """Returns the summed loss; -100 is no label."""
    return cross_entropy(logits, labels, reduction="sum", ignore_index=-100)


def unpacked(model, documents):
    """Returns the loss of each document by itself, summed."""
    alone = [model(d, torch.arange(len(d)), torch.zeros(len(d))) for d in documents]
    return sum(loss_of(logits[:-1], d[1:]) for logits, d in zip(alone, documents))


def lengths_of(loader):
    return [[segment.length for segment in row.segments] for row in loader.lineage]


def check(model, logits_and_labels, documents):
    """Asserts that the parts of a packed batch have the loss of its documents."""
    assert len(documents) > 2
    got = sum(loss_of(logits, labels) for logits, labels in logits_and_labels)
    torch.testing.assert_close(got, unpacked(model, documents))
    labels = sum(int((labels != -100).sum()) for _, labels in logits_and_labels)
    assert labels == sum(len(document) - 1 for document in documents)


def tensors(batch):
    return {k: v if isinstance(v, int) else torch.from_numpy(v) for k, v in batch.items()}


def ranks(address, cp):
    return [
        millrace.connect(address, dp_size=1, cp_rank=rank, cp_size=cp, tp_rank=0, timeout=60)
        for rank in range(cp)
    ]


def test_hf(tmp_path):
    model = Model()
    spec = write_job(tmp_path, dp=1, format="hf")
    with real_service(spec) as address, millrace.connect(address, dp_size=1) as loader:
        for _ in range(BATCHES):
            batch = {k: v[0] for k, v in tensors(next(loader)).items() if k.endswith(("ids", "ls"))}
            ids, positions = batch["input_ids"], batch["position_ids"]
            documents = ids.split([n for row in lengths_of(loader) for n in row])
            logits = model(ids, positions, by_positions(positions))
            check(model, [(logits[:-1], batch["labels"][1:])], documents)
            together = model(ids, positions, torch.zeros_like(ids))
            assert not torch.allclose(together, logits), "the model does not feel its mask"


def zigzag(line, rank, cp):
    chunks = line.chunk(2 * cp)
    return torch.cat([chunks[rank], chunks[2 * cp - 1 - rank]])


def unzigzag(parts):
    halves = [part.chunk(2) for part in parts]
    return torch.cat([head for head, _ in halves] + [tail for _, tail in reversed(halves)])


def test_hf_in_slices(tmp_path):
    """With context parallelism, labels that a model shifts inside its slice are not enough."""
    model, cp = Model(), 2
    spec = write_job(tmp_path, dp=1, cp=cp, format="hf")
    with real_service(spec) as address:
        loaders, missed = ranks(address, cp), 0
        for _ in range(BATCHES):
            parts = [tensors(next(loader)) for loader in loaders]
            ids = unzigzag([part["input_ids"][0] for part in parts])
            positions = unzigzag([part["position_ids"][0] for part in parts])
            lengths = [n for row in lengths_of(loaders[0]) for n in row]
            documents = ids[: sum(lengths)].split(lengths)
            logits = model(ids, positions, by_positions(positions))
            slices = [zigzag(logits, rank, cp) for rank in range(cp)]
            check(model, [(s, p["shift_labels"][0]) for s, p in zip(slices, parts)], documents)
            inside = sum(int((part["labels"][0, 1:] != -100).sum()) for part in parts)
            missed += sum(lengths) - len(lengths) - inside
        assert missed > 0
        for loader in loaders:
            loader.close()


def test_torchtitan(tmp_path):
    model = Model()
    spec = write_job(tmp_path, dp=1, format="torchtitan", cp_slicing="none")
    with real_service(spec) as address:
        data = millrace.torchtitan.DataLoader(address, dp_size=1, num_tokens_per_batch=2 * ROW)
        for _, (inputs, labels) in zip(range(BATCHES), data):
            rows = inputs["input"].split(ROW)
            lengths = lengths_of(data.loader)
            documents = [d for row, n in zip(rows, lengths) for d in row[: sum(n)].split(n)]
            segments = by_positions(inputs["positions"])
            logits = model(inputs["input"], inputs["positions"], segments)
            check(model, [(logits, labels)], documents)
        data.close()


def places(padded, rank, cp):
    """Returns what Transformer Engine's thd_get_partitioned_indices gives a rank."""
    if cp == 1:
        return torch.arange(int(padded[-1]))
    found = []
    for start, end in zip(padded[:-1].tolist(), padded[1:].tolist()):
        chunks = torch.arange(start, end).chunk(2 * cp)
        found += [chunks[rank], chunks[2 * cp - 1 - rank]]
    return torch.cat(found)


@pytest.mark.parametrize(("cp", "tp"), [(1, 1), (2, 1), (2, 2)])
def test_megatron_packed(tmp_path, cp, tp):
    model = Model()
    spec = write_job(tmp_path, dp=1, cp=cp, tp=tp, format="megatron-thd")
    spec.write_text(spec.read_text().replace("output: {", "output: {broadcast_at: tp, "))
    with real_service(spec) as address:
        loaders = ranks(address, cp)
        for _ in range(BATCHES):
            parts = [tensors(next(loader)) for loader in loaders]
            bounds, padded = parts[0]["cu_seqlens"], parts[0]["cu_seqlens_padded"]
            assert int(parts[0]["max_seqlen"]) == int(padded.diff().max()) <= ROW
            assert not (padded % math.lcm(2 * cp if cp > 1 else 1, cp * tp if tp > 1 else 1)).any()
            mine = [places(padded, rank, cp) for rank in range(cp)]
            ids, positions = torch.zeros(2, int(padded[-1]), dtype=torch.int64)
            for part, index in zip(parts, mine):
                ids[index], positions[index] = part["tokens"], part["position_ids"]
            starts = padded[:-1].tolist()
            documents = [ids[a : a + n] for a, n in zip(starts, bounds.diff().tolist()) if n]
            assert [len(d) for d in documents] == [n for r in lengths_of(loaders[0]) for n in r]
            segments = torch.searchsorted(padded, torch.arange(len(ids)), right=True)
            logits = model(ids, positions, segments)
            labels = [p["labels"].masked_fill(p["loss_mask"] == 0, -100) for p in parts]
            check(model, [(logits[i], told) for i, told in zip(mine, labels)], documents)
        for loader in loaders:
            loader.close()
