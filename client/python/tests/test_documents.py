"""Documents of a packed line do not see each other, in today's Transformers models.

The loss of what the service delivers is that of each document alone, for every family and
every attention implementation that runs on a CPU; or the adapter refuses the model.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from processes import needs_binary, real_service, write_job

torch = pytest.importorskip("torch", reason="torch is not installed: make py-frameworks")
transformers = pytest.importorskip("transformers", reason="not installed: make py-frameworks")

import millrace  # noqa: E402
import millrace.torch  # noqa: E402
import millrace.transformers  # noqa: E402

# Small models: more threads would only wait for each other.
torch.set_num_threads(1)

VOCABULARY, BATCHES = 310, 2

COMMON = {
    "vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "head_dim": 8,
}  # fmt: skip
EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 16}
GPT2 = {"vocab_size": VOCABULARY, "n_embd": 32, "n_layer": 2, "n_head": 4}

FALCON = {"vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2,
          "num_attention_heads": 4}  # fmt: skip

# Families that docs/bytes.md names, with what they need beyond the common settings.
FAMILIES = {
    "Llama": COMMON,
    "Mistral": {**COMMON, "sliding_window": 16},
    "Mixtral": {**COMMON, "num_local_experts": 4, "num_experts_per_tok": 2},
    "Qwen2": COMMON,
    "Qwen3": COMMON,
    "Qwen3Moe": {**COMMON, **EXPERTS, "num_experts": 4},
    "Gemma2": {**COMMON, "query_pre_attn_scalar": 8, "sliding_window": 16},
    "Phi3": COMMON,
    "Olmo2": COMMON,
    "SmolLM3": COMMON,
    "Granite": COMMON,
    "GPTNeoX": COMMON,
    "GPT2": GPT2,
    "Falcon": FALCON,
    "DeepseekV3": {
        **COMMON, **EXPERTS, "n_routed_experts": 4, "n_group": 1, "topk_group": 1,
        "q_lora_rank": 8, "kv_lora_rank": 8, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8,
        "v_head_dim": 8, "first_k_dense_replace": 1, "num_key_value_heads": 4,
    },
}  # fmt: skip

REFUSED = {
    "OPT": {"vocab_size": VOCABULARY, "hidden_size": 32, "ffn_dim": 64, "num_hidden_layers": 2,
            "num_attention_heads": 4, "word_embed_proj_dim": 32},
    "Bloom": {"vocab_size": VOCABULARY, "hidden_size": 32, "n_layer": 2, "n_head": 4},
    "Falcon": {**FALCON, "alibi": True},
    "Mamba": {"vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2},
    "Mamba2": {"vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2,
               "num_heads": 8, "head_dim": 8, "n_groups": 1, "state_size": 16},
}  # fmt: skip


def make_model(family, settings, attention):
    torch.manual_seed(0)
    config = getattr(transformers, family + "Config")(**settings)
    kind = getattr(transformers, family + "ForCausalLM", None)
    kind = kind or getattr(transformers, family + "LMHeadModel")
    try:
        return kind._from_config(config, attn_implementation=attention)
    except (ValueError, ImportError) as error:
        pytest.skip(f"{family} has no {attention} attention: {str(error)[:80]}")


@pytest.fixture(scope="module")
def batches(tmp_path_factory):
    """The first batches of a job, each with the lengths of its documents."""
    spec = write_job(tmp_path_factory.mktemp("job"), dp=1, format="hf")
    found = []
    with real_service(spec) as address:
        data = millrace.torch.Dataset(address, dp_size=1)
        for batch in itertools.islice(data, BATCHES):
            found.append((batch, [s.length for row in data.loader.lineage for s in row.segments]))
        data.close()
    return found


def alone(model, batch, lengths):
    """Returns the mean loss over the labels of documents, each of which the model sees alone."""
    total = count = 0
    for document in batch["input_ids"].split(lengths, dim=1):
        if document.shape[1] > 1:
            loss = model(input_ids=document, labels=document, use_cache=False).loss
            total, count = total + loss * (document.shape[1] - 1), count + document.shape[1] - 1
    return total / count


@needs_binary
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("family", FAMILIES)
def test_loss_of_a_packed_line(batches, family, attention):
    """model(**batch), as the README says it, without another word about caches."""
    model = make_model(family, FAMILIES[family], attention)
    model.eval()
    millrace.transformers.check(model)
    with torch.no_grad():
        for batch, lengths in batches:
            assert len(lengths) > 2
            torch.testing.assert_close(
                model(**batch).loss, alone(model, batch, lengths), rtol=2e-5, atol=0
            )


@needs_binary
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_a_cache_would_let_documents_see_each_other(batches, attention):
    """What the key ``use_cache`` is for: the comparison above can fail."""
    model = make_model("Llama", COMMON, attention).eval()
    batch, lengths = batches[0]
    with torch.no_grad():
        want = alone(model, batch, lengths)
        leaking = model(**{**batch, "use_cache": True}).loss
        with pytest.raises(AssertionError):
            torch.testing.assert_close(leaking, want, rtol=2e-5, atol=0)


@pytest.mark.parametrize("family", REFUSED)
def test_refused(family):
    """Models that know of no documents are refused before they are trained.

    Falcon's ALiBi counts along the whole line, which shows behind many tokens only.
    """
    with pytest.raises(millrace.UserError, match="documents of a packed line"):
        millrace.transformers.check(make_model(family, REFUSED[family], "eager"))


def test_check_leaves_the_model_as_it_was():
    model = make_model("Llama", COMMON, "sdpa").train()
    frozen = model.model.layers[0].eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    millrace.transformers.check(model)
    assert model.training and all(p.grad is None for p in model.parameters())
    assert not any(m.training for m in frozen.modules()) and model.model.layers[1].training
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])


# ---- images ----

SPEC = """
name: vlm
seed: 5
sources:
  - name: pairs
    files: "*.tar"
    transforms:
      - text: "{txt}"
      - tokenize: bytes
      - image: {columns: [png], token: 300, begin: 301, end: 302, patch: 4, merge: 2, min_pixels: 64, max_pixels: 4096}
      - append_eod: {}
batch: {sequence_length: 64, sequences: 8, microbatch_size: 2}
topology: {dp: 1}
output: {format: hf}
"""  # noqa: E501

MEAN, STD = (0.48, 0.46, 0.41), (0.27, 0.26, 0.28)


def vision_model(family):
    torch.manual_seed(0)
    rope = {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 1e4}
    text = {**COMMON, "rope_parameters": rope}
    del text["head_dim"]
    vision = {"depth": 2, "num_heads": 2, "patch_size": 4, "spatial_merge_size": 2,
              "temporal_patch_size": 2, "in_channels": 3}  # fmt: skip
    if family == "Qwen2VL":
        vision.update(embed_dim=32, hidden_size=32, mlp_ratio=2)
    else:
        vision.update(hidden_size=32, out_hidden_size=32, intermediate_size=64, window_size=16,
                      fullatt_block_indexes=[1])  # fmt: skip
    name = {"Qwen2VL": "Qwen2VL", "Qwen2_5_VL": "Qwen2_5_VL"}[family]
    config = getattr(transformers, name + "Config")(
        text_config=text, vision_config=vision, image_token_id=300, vision_start_token_id=301,
        vision_end_token_id=302, video_token_id=303,
    )  # fmt: skip
    return getattr(transformers, name + "ForConditionalGeneration")(config)


def alone_with_images(model, batch, lengths, source):
    """The same for a model with images, which finds its positions of a single document itself."""
    total = count = patch = at = image = 0
    pixels, grids = batch["pixel_values"], batch["image_grid_thw"]
    for number, length in enumerate(lengths):
        own = [s for s in source if s[-1] == number]
        size = int(sum(grid.prod() for grid in grids[image : image + len(own)]))
        ids = batch["input_ids"][:, at : at + length]
        labels = batch["labels"][:, at : at + length]
        given = {"input_ids": ids, "labels": labels, "mm_token_type_ids": (ids == 300).int()}
        if own:
            given["pixel_values"] = pixels[patch : patch + size]
            given["image_grid_thw"] = grids[image : image + len(own)]
        known = int((labels[:, 1:] != -100).sum())
        total = total + model(**given, use_cache=False).loss * known
        count, at, patch, image = count + known, at + length, patch + size, image + len(own)
    return total / count


@needs_binary
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("family", ["Qwen2VL", "Qwen2_5_VL"])
def test_loss_of_a_packed_line_with_images(tmp_path, family, attention):
    from test_vision import write_pairs

    write_pairs(tmp_path / "job")
    spec = tmp_path / "job" / "job.yaml"
    spec.write_text(SPEC)
    model = vision_model(family).eval()
    model.set_attn_implementation(attention)
    millrace.transformers.check(model)
    images = 0
    with real_service(spec) as address, torch.no_grad():
        data = millrace.torch.Dataset(address, dp_size=1)
        for batch in itertools.islice(data, 4):
            rows = [[s.length for s in row.segments] for row in data.loader.lineage]
            first = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
            source = [(*s, first[s[2]] + s[3]) for s in batch.images["source"].tolist()]
            made = millrace.transformers.qwen2_vl(batch, MEAN, STD)
            assert (made.step, made.microbatch) == (batch.step, batch.microbatch)
            want = alone_with_images(model, made, [n for row in rows for n in row], source)
            torch.testing.assert_close(model(**made).loss, want, rtol=2e-5, atol=0)
            images += len(source)
            if len(source) > 1:
                flat = {**made, "position_ids": batch["position_ids"]}
                with pytest.raises(AssertionError):  # as they are delivered, they are not enough
                    torch.testing.assert_close(model(**flat).loss, want, rtol=2e-5, atol=0)
        data.close()
    assert images > 4
