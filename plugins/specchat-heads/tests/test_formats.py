"""The formats of the heads of this plugin: tensors first, config second."""

from __future__ import annotations

import pytest
import torch
from plugin_heads import NAMES, published

from specchat.drafters.heads.detect import inspect_head
from specchat.drafters.heads.spec import BlockConfig
from specchat.errors import ModelError
from tests.drafters.published import inspected
from tests.drafters.published import published as published_elsewhere
from tests.drafters.test_detect import SMALL, stored

DETECTED = {
    "hydra": ("hydra", "Hydra"),
    "hydra-ungrounded": ("hydra", "Hydra"),
    "hydra++": ("hydra", "Hydra++"),
    "speculators-peagle": ("peagle", "speculators P-EAGLE"),
    "speculators-peagle-window": ("peagle", "speculators P-EAGLE"),
}
REFUSED = {
    "peagle without a mask token": (
        {"mask_hidden": SMALL, "layers.0.hidden_norm.weight": SMALL, "layers.0.self_attn.q_proj.weight": SMALL}, {},
        "no mask_token_id",
    ),
    "hydra by name": (
        {"0.weight": SMALL}, {"hydra_num_heads": 4, "hydra_head_arch": "cross-attn"}, "heads of the type cross-attn",
    ),
    "hydra on another layer": (
        {"hydra_mlp.0.0.linear.weight": SMALL}, {"hidden_state_offset": 2}, "Hydra with hidden_state_offset = 2"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_head_is_detected_by_its_tensors(name, tmp_path):
    spec = inspected(published(name), tmp_path)

    assert (spec.kind, spec.format) == DETECTED[name]
    assert spec.evidence
    assert spec.unsupported_reason is None


def test_the_tensors_are_enough_without_a_config(tmp_path):
    folder = published("hydra++").save(tmp_path)
    (folder / "config.json").write_text('{"num_attention_heads": 2}')

    spec = inspect_head(folder)

    assert ("hydra", 8, 16) == (spec.kind, spec.dimensions.head_size, spec.target_hidden_size)


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_supported_says_so(name, tmp_path):
    tensors, config, reason = REFUSED[name]

    assert reason in (inspect_head(stored(tmp_path / "head", tensors, config)).unsupported_reason or "")


class TestHydra:
    def test_the_sizes_are_those_of_the_tensors(self, tmp_path):
        spec = inspected(published("hydra++"), tmp_path, hydra_num_heads=5)

        assert (spec.tokens_ahead, spec.target_vocab_size, spec.context_window) == (3, 40, 2048)
        assert (spec.dimensions.heads, spec.dimensions.kv_heads, spec.dimensions.head_size) == (2, 1, 8)
        assert spec.warnings == ("config.json has 5 heads, the file has 3; the file is used",)
        assert "3 heads that also read the tokens before theirs, above a decoder layer" in spec.evidence[0]

    @pytest.mark.parametrize(
        ("name", "tensor"),
        [
            ("hydra", "hydra_lm_head.1.weight"), ("hydra", "hydra_mlp.1.0.linear.weight"),
            ("hydra", "hydra_mlp.2.0.res_connection.weight"), ("hydra++", "prefix_embeding_layer.norm.weight"),
            ("hydra++", "prefix_embeding_layer.layers.0.mlp.up_proj.weight"),
        ],
    )  # fmt: skip
    def test_a_missing_part_is_named(self, name, tensor, tmp_path):
        with pytest.raises(ModelError, match="a part of the head is missing: "):
            inspected(published(name), tmp_path, head={tensor: None})

    @pytest.mark.parametrize("tensor", ["hydra_mlp.2.0.linear", "hydra_mlp.1.0.res_connection", "hydra_lm_head.1"])
    def test_another_size_is_refused(self, tensor, tmp_path):
        cut = published("hydra").head[f"{tensor}.weight"][:, 1:]

        with pytest.raises(ModelError, match=r"weight \[\d+, \d+\] should be \[\d+, \d+\]"):
            inspected(published("hydra"), tmp_path, head={f"{tensor}.weight": cut})

    def test_a_folder_of_this_name_can_hold_another_head(self, tmp_path):
        assert inspected(published_elsewhere("medusa1"), tmp_path / "hydra").kind == "medusa"


class TestPEagle:
    @pytest.mark.parametrize("key", ["mask_token_id", "ptd_token_id", "pard_token"])
    def test_its_mask_token_has_three_names(self, key, tmp_path):
        config = {"mask_token_id": None} | {key: 38}

        spec = inspected(published("speculators-peagle"), tmp_path, **config)

        assert spec.block_config == BlockConfig(3, 38, samples_from_anchor=True)

    @pytest.mark.parametrize(
        ("architecture", "name"),
        [("PEagleDraftModel", "SpecForge P-EAGLE"), ("Eagle3LlamaForCausalLM", "vLLM P-EAGLE")],
    )
    def test_without_a_number_of_tokens_it_drafts_as_many_as_its_trainers(self, architecture, name, tmp_path):
        other = {"speculators_config": None, "speculators_model_type": None, "architectures": [architecture]}

        spec = inspected(published("speculators-peagle"), tmp_path, **other)

        assert (spec.kind, spec.format, spec.tokens_ahead) == ("peagle", name, 8)

    def test_a_mask_outside_the_vocabulary_is_refused(self, tmp_path):
        with pytest.raises(ModelError, match="the mask token 40 is outside the vocabulary of 40"):
            inspected(published("speculators-peagle"), tmp_path, mask_token_id=40)

    def test_the_state_of_its_masks_must_be_there_and_fit_to_fc(self, tmp_path):
        golden = published("speculators-peagle")

        with pytest.raises(ModelError, match="a part of the head is missing: mask_state"):
            inspected(golden, tmp_path / "a", head={"mask_hidden": None})
        with pytest.raises(ModelError, match=r"mask_hidden \[1, 47\] is not one state of 48 numbers, as fc reads"):
            inspected(golden, tmp_path / "b", head={"mask_hidden": torch.zeros(1, 47)})
