"""The formats of the heads of this plugin: tensors first, config second."""

from __future__ import annotations

import pytest
import torch
from plugin_heads import NAMES, published

from specchat.drafters.heads.detect import inspect_head
from specchat.drafters.heads.load_head import load_head
from specchat.drafters.heads.spec import TargetDimensions, mismatches
from specchat.errors import ModelError
from specchat_heads.block_spec import BlockConfig
from tests.drafters.published import CPU, inspected
from tests.drafters.published import published as published_elsewhere
from tests.drafters.test_detect import DETECTED as BUILT_IN
from tests.drafters.test_detect import SMALL, stored

DETECTED = {
    "eagle1": ("eagle", "SafeAILab EAGLE-1 or EAGLE-2"),
    "eagle1-bias": ("eagle", "SafeAILab EAGLE-1 or EAGLE-2"),
    "speculators-eagle": ("eagle", "speculators EAGLE"),
    "speculators-eagle-norms": ("eagle", "speculators EAGLE"),
    "medusa1": ("medusa", "Medusa-1"),
    "medusa1-deep": ("medusa", "Medusa-1"),
    "medusa2": ("medusa", "Medusa-1"),
    "hydra": ("hydra", "Hydra"),
    "hydra-ungrounded": ("hydra", "Hydra"),
    "hydra++": ("hydra", "Hydra++"),
    "speculators-peagle": ("peagle", "speculators P-EAGLE"),
    "speculators-peagle-window": ("peagle", "speculators P-EAGLE"),
    "dflash": ("dflash", "z-lab DFlash"),
    "dflash-window": ("dflash", "z-lab DFlash"),
    "speculators-dflash": ("dflash", "speculators DFlash"),
    "speculators-dflash-window": ("dflash", "speculators DFlash"),
    "speculators-dflash-ahead": ("dflash", "speculators DFlash"),
    "speculators-dflash-anchor": ("dflash", "speculators DFlash"),
    "speculators-dflash2": ("dflash2", "speculators DFlash-2"),
    "speculators-dflash2-window": ("dflash2", "speculators DFlash-2"),
    "dspark": ("dspark", "DeepSpec DSpark"),
    "dspark-gated": ("dspark", "DeepSpec DSpark"),
    "dspark-rnn": ("dspark", "DeepSpec DSpark"),
    "speculators-dspark": ("dspark", "speculators DSpark"),
    "speculators-dspark-mask": ("dspark", "speculators DSpark"),
    "mtp-mimo": ("mtp", "MiMo MTP"),
    "mtp-qwen3": ("mtp", "speculators MTP"),
    "mtp-glm4_moe": ("mtp", "DeepSeek-V3 MTP"),
    "mtp-deepseek_v3": ("mtp", "DeepSeek-V3 MTP"),
    "mtp-deepseek_v3-plain": ("mtp", "DeepSeek-V3 MTP"),
    "mtp-glm4_moe_lite": ("mtp", "DeepSeek-V3 MTP"),
}
REFUSED = {
    "experts with another scoring function": (
        {"model.layers.5.eh_proj.weight": torch.zeros(4, 8), "model.layers.5.mlp.gate.e_score_correction_bias": SMALL},
        {"scoring_func": "softmax"}, "mixture of experts with a routing that is not verified",
    ),
    "assistant of other layers": ({"x": SMALL}, {"model_type": "gemma4_assistant"}, "an assistant with layers of"),
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
    "dflash": ({"fc.weight": torch.zeros(4, 20), "hidden_norm.weight": SMALL}, {}, "no mask_token_id"),
    "dflash by name": ({"x": SMALL}, {"architectures": ["DFlashDraftModel"]}, "no mask_token_id"),
    "dflash scaled": (
        {"x": SMALL}, {"dflash_config": {"output_multiplier": 2.0, "mask_token_id": 3}}, "output_multiplier = 2.0",
    ),
    "dflash with a projector": (
        {"x": SMALL}, {"dflash_config": {"projector_type": "gru", "mask_token_id": 3}}, "the projector gru",
    ),
    "domino, which no code reads": (
        {"fc.weight": SMALL, "hidden_norm.weight": SMALL, "domino_gru.weight": SMALL}, {"mask_token_id": 3},
        "the correction of a drafted block",
    ),
    "dflash 2 with a draft vocabulary": (
        {"candidate_selector.x": SMALL, "d2t": SMALL}, {"architectures": ["DFlash2DraftModel"]},
        "DFlash-2 with a draft vocabulary",
    ),
    "dspark of Gemma": (
        {"fc.weight": SMALL, "hidden_norm.weight": SMALL, "markov_head.markov_w1.weight": SMALL},
        {"architectures": ["Gemma4DSparkModel"], "mask_token_id": 3}, "the layers of Gemma4DSparkModel",
    ),
    "dspark with a memory and slots of masks": (
        {"markov_head.joint_proj.weight": SMALL},
        {"architectures": ["Qwen3DSparkModel"], "mask_token_id": 3, "sample_from_anchor": False},
        "recurrent Markov head",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_head_is_detected_by_its_tensors(name, tmp_path):
    spec = inspected(published(name), tmp_path)

    assert (spec.kind, spec.format) == DETECTED[name]
    assert spec.evidence
    assert spec.unsupported_reason is None


@pytest.mark.parametrize(
    ("name", "kind", "head_size"),
    [("hydra++", "hydra", 8), ("medusa1", "medusa", 16), ("mtp-deepseek_v3-plain", "mtp", 6 + 4)],
)
def test_the_tensors_are_enough_without_a_config(name, kind, head_size, tmp_path):
    folder = published(name).save(tmp_path)
    (folder / "config.json").write_text('{"num_attention_heads": 2}')

    spec = inspect_head(folder)

    assert (kind, head_size, 16) == (spec.kind, spec.dimensions.head_size, spec.target_hidden_size)


def test_the_built_in_heads_are_still_found(tmp_path):
    found = {name: inspected(published_elsewhere(name), tmp_path / name) for name in BUILT_IN}

    assert BUILT_IN == {name: (spec.kind, spec.format) for name, spec in found.items()}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_supported_says_so(name, tmp_path):
    tensors, config, reason = REFUSED[name]

    assert reason in (inspect_head(stored(tmp_path / "head", tensors, config)).unsupported_reason or "")


class TestEagle:
    def test_another_activation_is_named(self, tmp_path):
        spec = inspected(published("eagle1"), tmp_path, hidden_act="gelu_pytorch_tanh")

        assert spec.unsupported_reason == "layers with the activation gelu_pytorch_tanh"

    @pytest.mark.parametrize("name", ["eagle3", "specforge-norms"])
    def test_a_built_in_head_that_projects_two_states_is_none(self, name, tmp_path):
        golden = published_elsewhere(name)
        narrow = {"fc.weight": torch.zeros(16, 32), "fc_norm.2.weight": None}

        spec = inspect_head(golden.save(tmp_path, head=narrow, target_layer_ids=[1, 2]))

        assert spec.kind == name.split("-")[0].replace("specforge", "eagle3")


class TestMedusa:
    def test_a_single_file_can_be_a_head(self, tmp_path):
        folder = published("medusa1").save(tmp_path)

        assert inspect_head(folder / "medusa_lm_head.pt").kind == "medusa"

    def test_in_a_complete_model_it_is_medusa_2(self, tmp_path):
        golden = published("medusa1")
        whole = {f"medusa_head.{name}": tensor for name, tensor in golden.head.items()} | {"model.norm.weight": SMALL}

        spec = inspect_head(stored(tmp_path, whole))

        assert (spec.kind, spec.tokens_ahead, spec.format) == ("medusa", 3, "Medusa-2 in its target's checkpoint")

    def test_the_number_of_heads_is_that_of_the_file(self, tmp_path):
        spec = inspected(published("medusa1"), tmp_path)

        assert spec.tokens_ahead == 3
        assert "config.json has 2 heads, the file has 3" in spec.warnings[0]

    def test_some_lm_heads_are_not_enough(self, tmp_path):
        with pytest.raises(ModelError, match="2 LM heads for 3 columns"):
            inspected(published("medusa1"), tmp_path, head={"1.1.weight": None})


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
        assert inspected(published("medusa1"), tmp_path / "hydra").kind == "medusa"


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


class TestDFlash:
    def test_zlab_counts_outputs_of_layers_and_speculators_inputs(self, tmp_path):
        zlab = inspected(published("dflash"), tmp_path / "a")
        speculators = inspected(published("speculators-dflash"), tmp_path / "b")

        assert (zlab.hidden_state_layers, [variant.hidden_state_layers for variant in zlab.variants]) == (
            (2, 5),
            [(1, 4)],
        )
        assert (speculators.hidden_state_layers, [variant.hidden_state_layers for variant in speculators.variants]) == (
            (2, 5),
            [(3, 6)],
        )

    def test_the_default_layers_are_spread_over_the_target(self, tmp_path):
        spec = inspected(published("dflash"), tmp_path, dflash_config={"mask_token_id": 39}, num_target_layers=36)

        assert spec.hidden_state_layers == (2, 34)

    def test_it_drafts_one_token_less_than_the_block_size_unless_the_anchor_drafts_too(self, tmp_path):
        assert inspected(published("dflash"), tmp_path / "a").tokens_ahead == 3
        assert inspected(published("speculators-dflash-anchor"), tmp_path / "b").tokens_ahead == 4

    def test_settings_are_nested_or_at_the_top_level(self, tmp_path):
        flat = {"mask_token_id": 38, "target_layer_ids": [0, 3], "dflash_config": None}

        spec = inspected(published("dflash"), tmp_path, **flat)

        assert (spec.hidden_state_layers, spec.block_config.mask_token_id, spec.block_config.block_size) == (
            (1, 4),
            38,
            4,
        )

    @pytest.mark.parametrize("mask", [-1, 40])
    def test_a_mask_outside_the_vocabulary_is_refused(self, mask, tmp_path):
        config = {"mask_token_id": mask, "target_layer_ids": [1, 4]}

        with pytest.raises(ModelError, match=f"the mask token {mask} is outside the vocabulary of 40"):
            inspected(published("dflash"), tmp_path, dflash_config=config)

    def test_a_block_of_one_token_is_refused(self, tmp_path):
        with pytest.raises(ModelError, match="block_size 1 has no position to draft"):
            inspected(published("dflash"), tmp_path, block_size=1)

    def test_their_number_must_match_fc(self, tmp_path):
        config = {"mask_token_id": 39, "target_layer_ids": [1, 3, 4]}

        with pytest.raises(ModelError, match=r"has 3 layers \(\[1, 3, 4\]\), but fc reads 2"):
            inspected(published("dflash"), tmp_path, dflash_config=config)
        with pytest.raises(ModelError, match="fc reads 2 hidden states, but the config has no layers"):
            inspected(published("dflash"), tmp_path, dflash_config={"mask_token_id": 39}, num_target_layers=None)
        with pytest.raises(ModelError, match=r"fc\.weight \[16, 40\] are not a multiple of the hidden size 16"):
            inspected(published("dflash"), tmp_path, head={"fc.weight": torch.zeros(16, 40)})

    def test_a_draft_vocabulary_needs_an_lm_head(self, tmp_path):
        with pytest.raises(ModelError, match=r"a part of the head is missing: lm_head\.weight"):
            inspected(published("speculators-dflash"), tmp_path, head={"lm_head.weight": None})

    def test_a_block_head_for_another_target_is_refused_with_both_sizes(self, tmp_path):
        spec = inspected(published("dflash"), tmp_path)

        assert mismatches(spec, TargetDimensions(16, 8, 40)) == []
        assert any(
            "size 16" in reason and "has 24" in reason for reason in mismatches(spec, TargetDimensions(24, 8, 40))
        )
        (reason,) = mismatches(spec, TargetDimensions(16, 6, 40))
        assert reason == "it was trained for a target with 8 layers, but this one has 6"


class TestDFlash2:
    def test_its_settings_are_nested_in_zlabs_format(self, tmp_path):
        settings = {"mask_token_id": 38, "target_layer_ids": [1, 4], "block_size": 8, "selector_top_k": 7}
        zlab = {"speculators_config": None, "speculators_model_type": None, "aux_hidden_state_layer_ids": None}

        spec = inspected(published("speculators-dflash2"), tmp_path, **zlab, dflash_config=settings, is_causal=False)

        assert (spec.kind, spec.format, spec.tokens_ahead) == ("dflash2", "z-lab DFlash-2", 7)
        assert spec.block_config == BlockConfig(8, 38, has_non_causal_windows=True)
        assert spec.evidence[-1] == "7 candidates in each slot"

    def test_slots_see_later_slots_through_a_window_unless_the_config_denies_it(self, tmp_path):
        golden = published("speculators-dflash2-window")
        default, denied = (
            inspected(golden, tmp_path / name, sliding_window_non_causal=value)
            for name, value in (("a", None), ("b", False))
        )

        assert default.block_config.has_non_causal_windows
        assert not denied.block_config.has_non_causal_windows

    def test_there_are_no_more_candidates_than_tokens(self, tmp_path):
        golden = published("speculators-dflash2")
        spec = inspected(golden, tmp_path, selector_top_k=500)

        assert load_head(spec, golden.target, None, CPU)._selector._candidates == 40

    @pytest.mark.parametrize(
        ("name", "shape"),
        [("candidate_selector.successor_codebook", (39, 6)), ("candidate_selector.hidden_projection.weight", (6, 15)),
         ("layers.1.mlp_conv.base_kernel", (2, 2, 16)), ("layers.1.attention_conv.kernel_projection.weight", (24, 15))],
    )  # fmt: skip
    def test_parts_of_another_size_are_refused_by_name(self, name, shape, tmp_path):
        with pytest.raises(ModelError, match=r"has the shape \[[\d, ]+\], but the rest of the head needs \[[\d, ]+\]"):
            inspected(published("speculators-dflash2"), tmp_path, head={name: torch.zeros(shape)})

    @pytest.mark.parametrize("name", ["candidate_selector.predecessor_codebook", "layers.0.attention_conv.base_kernel"])
    def test_without_a_part_it_is_refused(self, name, tmp_path):
        with pytest.raises(ModelError, match="a part of the head is missing"):
            inspected(published("speculators-dflash2"), tmp_path, head={name: None})

    @pytest.mark.parametrize("shape", [(), (0,), (2, 0, 16), (2, 3)])
    def test_a_convolution_without_taps_is_refused(self, shape, tmp_path):
        head = {"layers.0.attention_conv.base_kernel": torch.zeros(shape)}

        with pytest.raises(ModelError, match="the convolutions' 0 taps"):
            inspected(published("speculators-dflash2"), tmp_path, head=head)

    def test_a_convolution_over_more_slots_than_a_block_has_is_refused(self, tmp_path):
        with pytest.raises(ModelError, match="3 taps and 24 kernel numbers fit neither a block of 2 nor the size 16"):
            inspected(published("speculators-dflash2"), tmp_path, block_size=2)


class TestDSpark:
    def test_its_slots_predict_the_next_position_unless_the_config_denies_it(self, tmp_path):
        assert inspected(published("dspark"), tmp_path / "a").tokens_ahead == 4
        assert inspected(published("speculators-dspark"), tmp_path / "b", sample_from_anchor=None).tokens_ahead == 4
        assert inspected(published("speculators-dspark-mask"), tmp_path / "c").tokens_ahead == 3

    def test_it_is_recognized_by_its_tensors_when_the_config_has_no_name(self, tmp_path):
        spec = inspected(published("dspark"), tmp_path, architectures=None)

        assert (spec.kind, spec.tokens_ahead) == ("dspark", 4)

    def test_without_its_markov_and_confidence_heads_it_is_a_dflash_head(self, tmp_path):
        golden = published("dspark")
        corrections = {name: None for name in golden.head if name.startswith(("markov_head.", "confidence_head."))}

        spec = inspected(golden, tmp_path, head=corrections)

        assert (spec.kind, spec.tokens_ahead) == ("dflash", 4)

    @pytest.mark.parametrize(
        ("name", "shape"),
        [("markov_head.markov_w1.weight", (39, 6)), ("markov_head.markov_w2.weight", (23, 6)),
         ("markov_head.gate_proj.weight", (6, 21)), ("confidence_head.proj.weight", (1, 20))],
    )  # fmt: skip
    def test_heads_of_another_size_are_refused_by_name(self, name, shape, tmp_path):
        with pytest.raises(
            ModelError, match=r"(markov\.\w+\.weight|the confidence head) (has the shape )?\[\d+, \d+\]"
        ):
            inspected(published("speculators-dspark-mask"), tmp_path, head={name: torch.zeros(shape)})

    def test_a_markov_head_without_its_second_matrix_is_refused(self, tmp_path):
        with pytest.raises(ModelError, match=r"a part of the head is missing: markov\.projection\.weight"):
            inspected(published("dspark"), tmp_path, head={"markov_head.markov_w2.weight": None})
