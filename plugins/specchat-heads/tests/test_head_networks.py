"""The networks compute what the publishers' code computes, and every misreading shows."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch
from plugin_heads import NAMES, greedy_slots, logits_of, published

from specchat.drafters.heads import selftest
from specchat.drafters.heads.backbone import HeadBackbone
from specchat.drafters.heads.load_head import load_head
from specchat.drafters.heads.selftest import self_test
from specchat.engine.drafter import DraftContext
from specchat.engine.sampling import Sampler
from specchat.forward.llama.moe import Routing
from specchat_heads.candidate_selector import DFlash2Head
from tests.drafters.published import CPU, inspected
from tests.drafters.test_networks import (
    CLOSE,
    FAR,
    largest_error,
    swapped,
    with_rope,
    with_wiring,
    without,
    without_rope_scaling,
    without_windows,
)
from tests.tiny import target
from tests.tiny_heads import drafter_of, tiny_head


def with_block(**changes):
    return lambda spec: replace(spec, block_config=replace(spec.block_config, **changes))


def with_routing(**changes):
    return lambda spec: replace(spec, routing=replace(spec.routing, **changes))


def by_softmax(spec):
    return replace(spec, routing=Routing(spec.routing.experts_per_token))


def with_mla(**changes):
    return lambda spec: replace(spec, dimensions=replace(spec.dimensions, mla=replace(spec.dimensions.mla, **changes)))


def without_softmax_mscale(spec):
    """With the same cosines and sines, and without the factor of the scores."""
    scaling = {key: value for key, value in spec.rope.scaling.items() if not key.startswith("mscale")}
    return replace(spec, rope=replace(spec.rope, scaling=scaling | {"attention_factor": spec.rope.attention_factor}))


BLOCKS = [f"blocks.{column}.1.weight" for column in range(3)]


class NotConvolved(DFlash2Head):
    backbone = HeadBackbone


MISREADINGS = {
    "the bias of the projection is missing": ("eagle1-bias", without("join.bias")),
    "the RoPE base of EAGLE-1 is the default": ("eagle1", with_rope(theta=10000.0)),
    "the norms of the layer and the embedding are exchanged": (
        "speculators-eagle-norms",
        swapped("layers.0.input_layernorm.weight", "embedding_norm.weight"),
    ),
    "the columns of Medusa are exchanged": ("medusa1", swapped("blocks.0.0.weight", "blocks.1.0.weight")),
    "Medusa's second block is missing": ("medusa1-deep", without(*BLOCKS)),
    "the heads of Hydra are exchanged": ("hydra-ungrounded", swapped("heads.0.weight", "heads.1.weight")),
    "the shortcut of Hydra is its block": ("hydra", swapped("shortcuts.1.weight", "blocks.1.0.weight")),
    "the bias of Hydra's LM heads is missing": ("hydra", without("heads.0.bias", "heads.1.bias")),
    "Hydra++'s second block is missing": ("hydra++", without(*BLOCKS)),
    "the RoPE base of Hydra++ is another one": ("hydra++", with_rope(theta=2.0)),
    "the residual of P-EAGLE is not normed": ("speculators-peagle", with_wiring(residual_is_normed=False)),
    "the mask token is another": ("speculators-peagle", with_block(mask_token_id=5)),
    "the windows of P-EAGLE are ignored": ("speculators-peagle-window", without_windows),
    "the mask token is another one": ("dflash", with_block(mask_token_id=1)),
    "the norm after fc is missing": ("dflash", without("feature_norm.weight")),
    "the layer has no window": ("dflash-window", without_windows),
    "a layer with a window is not causal": ("dflash-window", with_block(has_non_causal_windows=True)),
    "speculators' windows start at the slot": ("speculators-dflash-window", with_block(windows_start_at_anchor=False)),
    "speculators' windows are causal": ("speculators-dflash-ahead", with_block(has_non_causal_windows=False)),
    "the blocks of DFlash-2 are not convolved": (
        "speculators-dflash2",
        lambda spec: replace(spec, network=partial(NotConvolved, candidates=5)),
    ),
    "the convolutions of attention and MLP are exchanged": (
        "speculators-dflash2",
        swapped("layers.0.attention_conv.base_kernel", "layers.0.mlp_conv.base_kernel"),
    ),
    "the candidate before and the candidate are exchanged": (
        "speculators-dflash2",
        swapped("selector.predecessors", "selector.successors"),
    ),
    "a slot has fewer candidates": (
        "speculators-dflash2",
        lambda spec: replace(spec, network=partial(DFlash2Head, candidates=3)),
    ),
    "the windows of DFlash-2 are causal": ("speculators-dflash2-window", with_block(has_non_causal_windows=False)),
    "the bias of the Markov head is missing": ("dspark-gated", without("markov.projection.weight")),
    "the gate of the Markov head is missing": ("dspark-gated", without("markov.gate.weight")),
    "the memory of the Markov head is missing": ("dspark-rnn", without("markov.joint.weight")),
    "the groups of experts are ignored": ("mtp-glm4_moe", with_routing(expert_groups=1, topk_groups=1)),
    "the scaling factor of experts is ignored": ("mtp-glm4_moe", with_routing(routed_scaling_factor=1.0)),
    "experts are selected by softmax instead of sigmoid": ("mtp-glm4_moe", by_softmax),
    "the correction of experts is missing": (
        "mtp-glm4_moe", without("layers.0.mlp.gate.e_score_correction_bias")
    ),
    "interleaved RoPE is taken for half-split": ("mtp-deepseek_v3", with_mla(is_rope_interleaved=False)),
    "half-split RoPE is taken for interleaved": ("mtp-deepseek_v3-plain", with_mla(is_rope_interleaved=True)),
    "the softmax scale is ignored": ("mtp-deepseek_v3", without_softmax_mscale),
    "DeepSeek's RoPE scaling is ignored": ("mtp-deepseek_v3", without_rope_scaling),
    "DeepSeek's RoPE base is ignored": ("mtp-glm4_moe_lite", with_rope(theta=2.0)),
    "latents are not normalized": ("mtp-deepseek_v3", without("layers.0.self_attn.kv_a_layernorm.weight")),
    "query latents are not normalized": ("mtp-deepseek_v3", without("layers.0.self_attn.q_a_layernorm.weight")),
    "the bias of latents is missing": (
        "mtp-deepseek_v3-plain", without("layers.0.self_attn.kv_a_proj_with_mqa.bias")
    ),
    "MiMo's pairs have DeepSeek's order": ("mtp-mimo", with_wiring(is_feature_first=False)),
    "speculators' pairs have MiMo's order": ("mtp-qwen3", with_wiring(is_feature_first=True)),
    "the halves of eh_proj are exchanged": ("mtp-deepseek_v3", with_wiring(is_feature_first=True)),
    "DeepSeek-V3's next draft step gets the unnormalized output": (
        "mtp-deepseek_v3", with_wiring(feeds_back_normed=False)
    ),
    "DeepSeek-V3's own embeddings are ignored": ("mtp-deepseek_v3", without("embed_tokens.weight")),
    "DeepSeek-V3's own LM head is ignored": ("mtp-deepseek_v3", without("lm_head.weight")),
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_logits_are_those_of_the_publisher(name, tmp_path):
    golden = published(name)

    assert largest_error(inspected(golden, tmp_path), golden, logits_of) < CLOSE, golden.oracle


@pytest.mark.parametrize("misreading", MISREADINGS)
def test_a_misreading_changes_the_logits(misreading, tmp_path):
    name, misread = MISREADINGS[misreading]
    golden = published(name)

    assert largest_error(misread(inspected(golden, tmp_path)), golden, logits_of) > FAR


@pytest.mark.parametrize("name", [name for name in NAMES if "dspark" in name])
def test_confidences_equal_the_publishers(name, tmp_path):
    golden = published(name)
    head = load_head(inspected(golden, tmp_path), golden.target, None, CPU)
    tokens, cache = golden.given["tokens"], head.pool.open()
    with head.pool.acquire_slot(cache, 64):
        head.prefill(golden.given["features"], 0, cache)
        block = head.draft_block([int(tokens[-1])], [len(tokens)], cache)
        slots = greedy_slots(head, block, tokens[-1:])

    confidence = torch.cat([slot.log_confidence for slot in slots])
    assert torch.allclose(confidence, golden.given["confidence"][1].sigmoid().log(), atol=1e-4)


def test_blocks_do_not_see_each_other(tmp_path):
    golden = published("dflash")
    head = load_head(inspected(golden, tmp_path), golden.target, None, CPU)
    tokens, cache = golden.given["tokens"].tolist(), head.pool.open()

    with head.pool.acquire_slot(cache, 32):
        head.prefill(golden.given["features"], 0, cache)
        both = head.draft_block([tokens[2], tokens[5]], [3, 6], cache).logits
        first, second = (
            head.draft_block([tokens[2]], [3], cache).logits,
            head.draft_block([tokens[5]], [6], cache, tokens_ahead=2).logits,
        )

    assert torch.allclose(both[:1], first, atol=1e-5)
    assert torch.allclose(both[1:, :2], second, atol=1e-5)
    assert cache.length == 6


def test_a_block_sees_no_more_text_than_its_training_length(tmp_path):
    golden = published("dflash")
    head = load_head(replace(inspected(golden, tmp_path), context_window=2), golden.target, None, CPU)
    token, cache, other = int(golden.given["tokens"][-1]), head.pool.open(), head.pool.open()

    with head.pool.acquire_slot(cache, 32), head.pool.acquire_slot(other, 32):
        head.prefill(golden.given["features"], 0, cache)
        head.prefill(golden.given["features"][-1:], 5, other)
        assert torch.allclose(
            head.draft_block([token], [6], cache).logits,
            head.draft_block([token], [6], other, first_position=5).logits,
            atol=1e-5,
        )


def test_every_golden_file_names_its_oracle():
    assert {published(name).oracle.split()[0] for name in NAMES} == {
        "specforge", "speculators", "zankner/Hydra", "deepseek-ai/DeepSpec", "medusa-llm", "eagle-llm",
        "SafeAILab/EAGLE", "transformers",
    }  # fmt: skip


def test_bytes_are_those_of_its_own_weights(tmp_path):
    golden = published("medusa2")

    head = load_head(inspected(golden, tmp_path), golden.target, torch.float32, CPU)

    assert head.bytes == sum(weight.numel() * 4 for weight in golden.head.values())
    assert head.tokens_ahead == 3


@pytest.mark.parametrize("kind", ["peagle", "dflash"])
def test_a_head_whose_draft_is_one_pass_is_tested_at_every_depth(kind):
    model = target("dense-llama")

    result = self_test(tiny_head(kind, model), model)

    assert len(result.greedy_by_depth) == 3
    assert result.positions == 120


def test_the_depths_of_p_eagle_are_those_of_its_draft():
    model = target("dense-llama")
    head = tiny_head("peagle", model)
    model.set_hidden_state_layers(head.hidden_state_layers)
    sample = selftest.sample_text(model, [7, 3])
    drafter, tokens = drafter_of("peagle", model), sample.tokens
    drafter.hidden_states.add(0, sample.hidden_states)
    prefix = Sampler().make_seen_tokens(tokens, model.vocab_size, torch.device("cpu"))

    predicted = [int(column[-1]) for column in head.predictions(sample)]

    draft = drafter.propose(DraftContext(tokens, Sampler(), 3, prefix))
    assert len(draft) > 1
    assert draft.tokens[1:] == predicted[: len(draft) - 1]
