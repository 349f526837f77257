"""The self-test tells the right reading of a head with latent attention from the wrong ones."""

from __future__ import annotations

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from test_head_networks import with_mla, without_softmax_mscale

from specchat.drafters.heads.detect import inspect_head
from specchat.drafters.heads.load_head import load_head
from specchat.drafters.heads.selftest import load_selected_head, self_test
from tests.drafters.published import CPU
from tests.drafters.test_networks import with_wiring, without
from tests.drafters.test_selftest import PredictedTarget
from tests.tiny import VOCABULARY
from tests.tiny import target as tiny
from tests.tiny_heads import saved_head

YARN = {"type": "yarn", "factor": 40, "mscale": 2.0, "mscale_all_dim": 2.0, "original_max_position_embeddings": 4096}
SCALED = ("q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj")
MLA_MISREADINGS = {
    "interleaved RoPE is taken for half-split": with_mla(is_rope_interleaved=False),
    "the softmax scale is ignored": without_softmax_mscale,
    "latents are not normalized": without("layers.0.self_attn.kv_a_layernorm.weight"),
    "the halves of eh_proj are exchanged": with_wiring(is_feature_first=True),
    "the next draft step gets the unnormalized output": with_wiring(feeds_back_normed=False),
}


class TestAHeadWithMla:
    @pytest.fixture
    def spec(self, tmp_path):
        """A head with large attention scores and large logits."""
        shutil.copytree(saved_head("mtp latent"), tmp_path, dirs_exist_ok=True)
        weights = load_file(tmp_path / "model.safetensors")
        at, generator = "model.layers.3", torch.Generator().manual_seed(2)
        weights |= {f"{at}.self_attn.{name}.weight": 2 * weights[f"{at}.self_attn.{name}.weight"] for name in SCALED}
        for norm in (f"{at}.self_attn.kv_a_layernorm.weight", f"{at}.shared_head.norm.weight"):
            weights[norm] = 0.5 + torch.rand(weights[norm].shape, generator=generator)
        for own in ("embed_tokens", "shared_head.head"):
            weights[f"{at}.{own}.weight"] = 0.7 * torch.randn(VOCABULARY, 48, generator=generator)
        save_file(weights, tmp_path / "model.safetensors")
        config = json.loads((tmp_path / "config.json").read_text())
        (tmp_path / "config.json").write_text(json.dumps(config | {"rope_scaling": YARN}))
        return inspect_head(tmp_path)

    @pytest.fixture
    def predicted_target(self, spec):
        return PredictedTarget(load_head(spec, tiny("dense-llama"), None, CPU), layers=3)

    def test_is_always_right_with_the_right_config(self, spec, predicted_target):
        assert self_test(load_head(spec, predicted_target, None, CPU), predicted_target).greedy_by_depth == (
            1.0,
            1.0,
            1.0,
        )

    @pytest.mark.dear
    @pytest.mark.parametrize("misreading", MLA_MISREADINGS)
    def test_is_often_wrong_with_a_misread_config(self, misreading, spec, predicted_target):
        misread = MLA_MISREADINGS[misreading](spec)

        result = self_test(load_head(misread, predicted_target, None, CPU), predicted_target)

        assert result.greedy_by_depth[-1] < 0.7

    @pytest.mark.full
    def test_has_the_rope_layout_that_agrees_best_when_the_config_has_none(self, spec, predicted_target, tmp_path):
        half_split = with_mla(is_rope_interleaved=False)(spec)

        head = load_selected_head(half_split.with_variants(spec), predicted_target, None, CPU, tmp_path)

        assert self_test(head, predicted_target).greedy_by_depth == (1.0, 1.0, 1.0)
