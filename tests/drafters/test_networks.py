"""Our networks have the outputs of the publishers' code in float32, and a misread config changes them."""

from dataclasses import replace

import pytest
import torch

from specchat.drafters.heads.load_head import load_head
from specchat.errors import ModelError
from specchat.forward.batch import RowBatch
from tests.drafters.published import CPU, NAMES, inspected, logits_of, published

CLOSE, FAR = 1e-4, 1e-2  # the rounding of float32 depends on the instructions of the CPU


def largest_error(spec, golden, logits_of=logits_of):
    """The largest difference of a logit, over both runs."""
    first, second = logits_of(spec, golden)
    expected = golden.given["second"]
    rows = second[len(second) - len(expected) :]
    return max(difference(first, golden.given["first"]), difference(rows, expected))


def difference(ours, theirs):
    """Relative to the number. Tokens that are no candidates have the logit -inf, infinitely far from a number."""
    relative = ((ours - theirs).abs() / (1 + theirs.abs())).nan_to_num(float("inf"))
    return float(torch.where(ours == theirs, 0.0, relative).max()) if theirs.numel() else 0.0


def with_wiring(**changes):
    return lambda spec: replace(spec, wiring=replace(spec.wiring, **changes))


def with_rope(**changes):
    return lambda spec: replace(spec, rope=replace(spec.rope, **changes))


def without(*names):
    """Without these tensors."""
    return lambda spec: renamed(spec, {name: name for name in spec.tensors.locations if name not in names})


def swapped(one, other):
    """With two tensors of the same shape exchanged."""

    def swap(spec):
        names = {name: name for name in spec.tensors.locations} | {one: other, other: one}
        return renamed(spec, names)

    return swap


def renamed(spec, names):
    return replace(spec, tensors=spec.tensors.renamed(names))


def without_rope_scaling(spec):
    return replace(spec, rope=replace(spec.rope, rope_type="default"))


def with_routing(**changes):
    return lambda spec: replace(spec, routing=replace(spec.routing, **changes))


def without_windows(spec):
    return replace(spec, dimensions=replace(spec.dimensions, sliding_windows=()))


FC_NORMS = [f"fc_norm.{index}.weight" for index in range(3)]
EMBEDDING, FEATURE = "embedding_norm.weight", "feature_norm.weight"
MISREADINGS = {
    "the RoPE base is the target's": ("eagle3", with_rope(theta=500000.0)),
    "the RoPE base of the config is ignored": ("eagle3-theta", with_rope(theta=10000.0)),
    "the RoPE base of AngelSlim's config is used": ("angelslim", with_rope(theta=1000000.0)),
    "the two norms of a pair are exchanged": ("eagle3", swapped(EMBEDDING, FEATURE)),
    "the order of a pair is reversed": ("eagle3", with_wiring(is_feature_first=True)),
    "the next draft step gets the normalized output": ("eagle3", with_wiring(feeds_back_normed=True)),
    "the norms of the hidden states are missing": ("specforge-norms", without(*FC_NORMS)),
    "the norms of the hidden states are exchanged": ("specforge-norms", swapped(FC_NORMS[0], FC_NORMS[2])),
    "the RoPE scaling is ignored": ("specforge-llama3", without_rope_scaling),
    "the residual is not normalized": ("speculators-plain", with_wiring(residual_is_normed=False)),
    "its own embeddings are ignored": ("speculators-plain", without("embed_tokens.weight")),
    "the norm of all hidden states is missing": ("speculators-gpt", without("input_norm.weight")),
    "norm_output has SpecForge's meaning": ("speculators-31", with_wiring(feeds_back_normed=False)),
    "the query norm is missing": ("speculators-31", without("layers.0.self_attn.q_norm.weight")),
    "the second layer has no window": ("speculators-window", without_windows),
    "norms are not stored as weight - 1": ("mtp-qwen3_next", with_wiring(norms_add_one=False)),
    "the whole head is rotated": ("mtp-qwen3_5_text", with_rope(partial_rotary_factor=1.0)),
    "DeepSeek's next draft step gets the unnormalized output": ("mtp-deepseek", with_wiring(feeds_back_normed=False)),
    "the weights of experts are not normalized": ("mtp-qwen3_next-experts", with_routing(is_topk_normalized=False)),
    "the gate of the shared expert is ignored": (
        "mtp-qwen3_next-experts", without("layers.0.mlp.shared_expert_gate.weight")
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_logits_are_those_of_the_publisher(name, tmp_path):
    golden = published(name)

    assert largest_error(inspected(golden, tmp_path), golden) < CLOSE, golden.oracle


@pytest.mark.parametrize("misreading", MISREADINGS)
def test_a_misreading_changes_the_logits(misreading, tmp_path):
    name, misread = MISREADINGS[misreading]
    golden = published(name)

    assert largest_error(misread(inspected(golden, tmp_path)), golden) > FAR


def test_every_golden_file_names_its_oracle():
    assert all(published(name).oracle for name in NAMES)
    assert {published(name).oracle.split()[0] for name in NAMES} == {
        "SafeAILab/EAGLE", "deepseek-ai/DeepSpec", "angelslim", "specforge", "speculators", "transformers",
    }  # fmt: skip


@pytest.mark.parametrize("name", ["eagle3", "mtp-qwen3_5_text"])
def test_branches_do_not_see_each_other(name, tmp_path):
    golden = published(name)
    head = load_head(inspected(golden, tmp_path), golden.target, None, CPU)
    hidden_states, embeddings = head.fuse(golden.given["features"]), head.embed(golden.given["tokens"])
    cache = head.pool.open()

    def logits(rows, mask):
        batch = RowBatch([0] * len(rows), torch.tensor([0, 1, 1])[rows], torch.tensor(mask, dtype=torch.bool), 0)
        return head.forward(hidden_states[rows], embeddings[rows], batch, cache).logits

    with head.pool.acquire_slot(cache, 8):
        both = logits([0, 1, 2], [[1, 0, 0], [1, 1, 0], [1, 0, 1]])
        one, other = logits([0, 1], [[1, 0], [1, 1]]), logits([0, 2], [[1, 0], [1, 1]])

    assert torch.allclose(both[:2], one, atol=1e-5)
    assert torch.allclose(both[2], other[1], atol=1e-5)
    assert cache.length == 0


@pytest.mark.parametrize("name", ["mtp-deepseek", "eagle3"], ids=["the target's LM head", "its own"])
def test_only_the_requested_rows_have_logits(name, tmp_path):
    golden = published(name)
    head = load_head(inspected(golden, tmp_path), golden.target, None, CPU)
    hidden_states, embeddings = head.fuse(golden.given["features"]), head.embed(golden.given["tokens"])
    batch, cache = RowBatch([0] * 6, torch.arange(6), torch.ones(6, 6, dtype=torch.bool).tril(), 0), head.pool.open()
    row_counts, lm_head = list[int](), head._lm_head
    head._lm_head = lambda rows: row_counts.append(len(rows)) or lm_head(rows)

    with head.pool.acquire_slot(cache, 8):
        all_rows = head.forward(hidden_states, embeddings, batch, cache)
        last_rows = head.forward(hidden_states, embeddings, batch, cache, logit_rows=2)
        no_rows = head.forward(hidden_states, embeddings, batch, cache, logit_rows=0)

    assert row_counts == [6, 2, 0]
    assert torch.allclose(last_rows.logits, all_rows.logits[-2:], atol=1e-5)
    assert torch.allclose(last_rows.hidden_states, all_rows.hidden_states[-2:], atol=1e-5)
    assert len(no_rows.logits) == len(no_rows.hidden_states) == 0


@pytest.mark.parametrize("name", ["eagle3", "mtp-qwen3_5_text"])
def test_positions_beyond_the_training_length_only_change_the_rotation(name, tmp_path):
    golden = published(name)
    head = load_head(inspected(golden, tmp_path), golden.target, None, CPU)
    hidden_states, embeddings = head.fuse(golden.given["features"]), head.embed(golden.given["tokens"])
    cache = head.pool.open()

    def output(start):
        positions = torch.arange(6) + start
        return head.forward(
            hidden_states, embeddings, RowBatch([0] * 6, positions, torch.ones(6, 6, dtype=torch.bool).tril(), 0), cache
        )

    with head.pool.acquire_slot(cache, 8):
        assert torch.allclose(output(0).logits, output(50_000).logits, atol=0.05)


def test_a_head_runs_in_the_dtype_of_its_target(tmp_path):
    golden = published("eagle3")
    target = golden.target
    target.pool.layout = replace(target.pool.layout, dtype=torch.bfloat16)
    head = load_head(inspected(golden, tmp_path), target, None, CPU)

    fused = head.fuse(golden.given["features"].bfloat16())

    assert fused.dtype == torch.bfloat16
    assert head.pool.layout.dtype == torch.bfloat16


def test_bytes_are_those_of_its_own_weights(tmp_path):
    golden = published("mtp-qwen3_5_text")

    head = load_head(inspected(golden, tmp_path), golden.target, torch.float32, CPU)

    assert head.bytes == sum(weight.numel() * 4 for weight in golden.head.values())


def test_nan_is_refused_with_the_name_of_the_tensor(tmp_path):
    golden = published("eagle3")
    broken = golden.head["midlayer.mlp.up_proj.weight"].clone()
    broken[0, 0] = float("nan")

    spec = inspected(golden, tmp_path, head={"midlayer.mlp.up_proj.weight": broken})

    with pytest.raises(ModelError, match=r"layers\.0\.mlp\.up_proj\.weight contains NaN or infinite values"):
        load_head(spec, golden.target, None, CPU)


def test_an_unsupported_head_is_refused_with_the_reason(tmp_path):
    golden = published("mtp-deepseek")
    spec = replace(inspected(golden, tmp_path), unsupported_reason="its layer is a mixture of experts")

    with pytest.raises(ModelError, match="not supported yet: its layer is a mixture of experts"):
        load_head(spec, golden.target, None, CPU)


def test_a_head_that_does_not_fit_is_refused_before_weights_are_read(tmp_path):
    narrow, wide = published("eagle3"), published("eagle3-narrow")
    spec = inspected(narrow, tmp_path)
    (tmp_path / narrow.file).unlink()

    with pytest.raises(ModelError, match="hidden states of size 16, but the target has 20"):
        load_head(spec, wide.target, None, CPU)
