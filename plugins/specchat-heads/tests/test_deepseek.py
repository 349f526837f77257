"""MTP with the layers of DeepSeek-V3 and GLM: what the files say, and the routing by groups of experts."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from plugin_heads import published

from specchat.drafters.heads.load_head import load_head
from specchat.errors import ModelError
from specchat.forward.llama.moe import Routing
from specchat_heads.deepseek_layers import GroupRouting
from specchat_heads.mla import MlaDimensions
from tests.drafters.published import CPU, inspected
from tests.drafters.test_eagle import made
from tests.forward.test_moe import OPS, experts, loader, mixture_of, selected


class TestMla:
    PARTS = ("q_a_layernorm", "q_b_proj", "kv_a_layernorm", "kv_b_proj", "o_proj")

    def test_the_sizes_are_those_of_the_tensors(self, tmp_path):
        golden = published("mtp-deepseek_v3")

        spec = inspected(golden, tmp_path, kv_lora_rank=99, num_attention_heads=None)

        assert spec.dimensions.mla == MlaDimensions(
            heads=3, kv_lora_rank=12, qk_nope_head_dim=6, qk_rope_head_dim=4, v_head_dim=5, q_lora_rank=10
        )
        assert spec.warnings[0] == "config.json has kv_lora_rank = 99, the tensors have 12; the tensors are used"
        assert "3 heads over latents of size 12 and a rotary key of size 4" in spec.evidence[-1]

    @pytest.mark.parametrize("part", PARTS)
    def test_a_missing_part_is_named(self, part, tmp_path):
        with pytest.raises(ModelError, match=rf"a part of the head is missing: layers\.0\.self_attn\.{part}\.weight"):
            inspected(published("mtp-deepseek_v3"), tmp_path, head={f"model.layers.3.self_attn.{part}.weight": None})

    @pytest.mark.parametrize("name", ["q_b_proj", "kv_b_proj", "kv_a_proj_with_mqa"])
    def test_shapes_that_no_head_size_fits_are_refused(self, name, tmp_path):
        tensor = f"model.layers.3.self_attn.{name}.weight"
        cut = published("mtp-deepseek_v3").head[tensor][:-1]

        with pytest.raises(ModelError, match=r"no head size fits the projections \(q \d+, kv_a \d+, kv_b \d+"):
            inspected(published("mtp-deepseek_v3"), tmp_path, head={tensor: cut})

    def test_the_rope_layout_is_from_the_config_or_its_family_or_unknown(self, tmp_path):
        golden = published("mtp-deepseek_v3")

        configured, known_family, unknown = (
            inspected(golden, tmp_path / str(number), mtp_hidden_states="post_norm", **changes)
            for number, changes in enumerate(({"rope_interleave": False}, {}, {"model_type": "another"}))
        )

        assert not configured.dimensions.mla.is_rope_interleaved
        assert known_family.dimensions.mla.is_rope_interleaved
        assert configured.variants == known_family.variants == ()
        assert [each.dimensions.mla.is_rope_interleaved for each in (unknown, *unknown.variants)] == [True, False]
        assert "interleaved or half-split" in unknown.warnings[0]

    def test_two_unknown_settings_are_four_variants(self, tmp_path):
        spec = inspected(published("mtp-deepseek_v3"), tmp_path, model_type=None)

        settings = {
            (each.wiring.feeds_back_normed, each.dimensions.mla.is_rope_interleaved) for each in (spec, *spec.variants)
        }
        assert len(spec.variants) == 3
        assert len(settings) == 4


class TestExperts:
    def test_a_missing_expert_is_named(self, tmp_path):
        missing = "mlp.experts.5.up_proj.weight"

        with pytest.raises(ModelError, match=rf"a part of the head is missing: layers\.0\.{missing}"):
            inspected(published("mtp-glm4_moe"), tmp_path, head={f"model.layers.3.{missing}": None})

    @pytest.mark.parametrize("config", [{"n_group": 3}, {"num_experts_per_tok": 5}, {"topk_group": 9}], ids=str)
    def test_selecting_more_experts_than_there_are_is_refused(self, config, tmp_path):
        with pytest.raises(ModelError, match="of 8 experts cannot be selected from"):
            inspected(published("mtp-glm4_moe"), tmp_path, **config)


def test_mla_caches_latents(tmp_path):
    golden = published("mtp-deepseek_v3")

    head = load_head(inspected(golden, tmp_path), golden.target, None, CPU)

    assert head.pool.layout.shapes == (
        (1, 12 + 4, 0),
    )  # a latent and a rotary key instead of 3 keys of 10 and values of 5
    assert head.pool.layout.bytes_per_row == 4 * 16


def test_a_correction_changes_the_selection_and_not_the_weights():
    corrected = GroupRouting(1, is_topk_normalized=False, correction=torch.tensor([0.0, 1.0]))

    assert selected([2.0, 0.0], GroupRouting(1, is_topk_normalized=False)).keys() == {0}
    assert selected([2.0, 0.0], corrected) == {1: 0.5}


def test_groups_are_ranked_by_their_best_two_experts():
    routing = GroupRouting(experts_per_token=2, expert_groups=2, topk_groups=1)

    assert selected([9.0, -9.0, 1.0, 1.0], routing).keys() == {2, 3}
    assert selected([9.0, -9.0, 1.0, 1.0], GroupRouting(experts_per_token=2)).keys() == {0, 2}


def test_weights_are_normalized_before_they_are_scaled():
    routing = GroupRouting(experts_per_token=2, routed_scaling_factor=2.5)

    assert abs(sum(selected([3.0, 2.0, 1.0], routing).values()) - 2.5) < 1e-6


def test_a_correction_is_added_in_float32_for_every_dtype(tmp_path: Path):
    equal_in_bfloat16 = torch.tensor([1.0, 1.001])
    routing = GroupRouting(experts_per_token=1, correction=equal_in_bfloat16)
    mixture = mixture_of(loader(tmp_path, experts(2), torch.bfloat16), routing)

    outputs = mixture(torch.ones(3, 2, dtype=torch.bfloat16), OPS)

    assert outputs.dtype == torch.bfloat16
    only = mixture_of(loader(tmp_path, experts(1), torch.bfloat16), Routing(experts_per_token=1))
    assert torch.allclose(outputs.float(), 2 * only(torch.ones(3, 2, dtype=torch.bfloat16), OPS).float(), rtol=0.02)


def test_a_head_with_other_parts_than_kernels_drafts_by_operations():
    assert made("mtp latent")[1].head.network is None
