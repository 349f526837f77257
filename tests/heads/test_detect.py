"""What a folder is taken for, every trap that publishers set, and one clear line for what is no head."""

import json
import pickle
import shutil
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file

from specchat.cli.main import run
from specchat.errors import ModelError
from specchat.heads.detect import inspect_head, target_dimensions
from specchat.heads.spec import MlaDimensions, TargetDimensions, mismatches
from specchat.models.load_options import EMBEDDED, find_head
from tests.heads.published import inspected, published
from tests.tiny import saved

RECOGNISED = {
    "eagle1": ("eagle", "SafeAILab EAGLE-1 or EAGLE-2"),
    "eagle1-bias": ("eagle", "SafeAILab EAGLE-1 or EAGLE-2"),
    "speculators-eagle-norms": ("eagle", "speculators EAGLE"),
    "eagle3": ("eagle3", "SafeAILab EAGLE-3"),
    "angelslim": ("eagle3", "AngelSlim EAGLE-3"),
    "specforge": ("eagle3", "SpecForge EAGLE-3"),
    "deepspec": ("eagle3", "DeepSpec EAGLE-3"),
    "speculators-plain": ("eagle3", "speculators EAGLE-3"),
    "mtp-deepseek": ("mtp", "DeepSeek-V3 MTP"),
    "mtp-qwen3_next": ("mtp", "Qwen3-Next MTP"),
    "mtp-qwen3_5_text": ("mtp", "Qwen3-Next MTP"),
    "mtp-mimo": ("mtp", "MiMo MTP"),
    "mtp-qwen3": ("mtp", "speculators MTP"),
    "medusa1": ("medusa", "Medusa-1"),
    "medusa2": ("medusa", "Medusa-1"),
    "mtp-glm4_moe": ("mtp", "DeepSeek-V3 MTP"),
    "mtp-deepseek_v3": ("mtp", "DeepSeek-V3 MTP"),
    "mtp-deepseek_v3-plain": ("mtp", "DeepSeek-V3 MTP"),
    "mtp-glm4_moe_lite": ("mtp", "DeepSeek-V3 MTP"),
    "mtp-qwen3_next-experts": ("mtp", "Qwen3-Next MTP"),
    "dflash": ("dflash", "z-lab DFlash"),
    "speculators-dflash": ("dflash", "speculators DFlash"),
}
SMALL = torch.zeros(4, 4)
FIRST = "model.layers.5."
NOT_YET = {  # tensors, config, and what it says
    "dflash": ({"fc.weight": torch.zeros(4, 20), "hidden_norm.weight": SMALL}, {}, "which token is its mask"),
    "dflash by name": ({"x": SMALL}, {"architectures": ["DFlashDraftModel"]}, "DFlash"),
    "dflash 2": ({"candidate_selector.x": SMALL}, {"architectures": ["DFlash2DraftModel"]}, "candidate selector"),
    "dflash scaled": (
        {"x": SMALL}, {"dflash_config": {"output_multiplier": 2.0, "mask_token_id": 3}}, "output_multiplier = 2.0",
    ),
    "dflash behind": (
        {"x": SMALL}, {"dflash_config": {"projector_type": "gru", "mask_token_id": 3}}, "with gru behind it",
    ),
    "dspark": ({"markov_head.markov_w1": SMALL}, {}, "DSpark"),
    "domino": ({"domino_gru.weight": SMALL}, {"architectures": ["DominoDraftModel"]}, "Domino"),
    "peagle": ({"mask_hidden": SMALL, "fc.weight": SMALL}, {"speculators_model_type": "peagle"}, "P-EAGLE"),
    "hydra": ({"0.weight": SMALL}, {"hydra_num_heads": 4}, "Hydra"),
    "assistant": ({"x": SMALL}, {"model_type": "gemma4_assistant"}, "gemma4_assistant"),
    "mlp": ({"x": SMALL}, {"speculators_model_type": "mlp"}, "speculators mlp"),
    "experts": (
        {f"{FIRST}eh_proj.weight": torch.zeros(4, 8), f"{FIRST}mlp.experts.0.up_proj.weight": SMALL}, {},
        "mixture of experts, chosen by a rule",
    ),
    "experts by a rule": (
        {f"{FIRST}eh_proj.weight": torch.zeros(4, 8), f"{FIRST}mlp.gate.e_score_correction_bias": SMALL},
        {"scoring_func": "softmax"}, "mixture of experts, chosen by a rule",
    ),
    "turns": (
        {"mtp.fc.weight": torch.zeros(4, 8), "mtp.layers.0.x.weight": SMALL, "mtp.layers.1.x.weight": SMALL}, {},
        "several layers that take turns",
    ),
    "an indexer": (
        {f"{FIRST}eh_proj.weight": torch.zeros(4, 8), f"{FIRST}self_attn.indexer.wk.weight": SMALL}, {},
        "an indexer chooses what its layer looks back at",
    ),
}  # fmt: skip


def stored(folder, tensors, config=None):
    folder.mkdir(parents=True, exist_ok=True)
    save_file({name: tensor.clone() for name, tensor in tensors.items()}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config or {}))
    return folder


def taps_of(folder, **config):
    """The taps that a config is read as, with those of its other readings."""
    spec = inspected(published("eagle3"), folder, **config)
    return spec.hidden_state_layers, [other.hidden_state_layers for other in spec.variants]


@pytest.mark.parametrize("name", RECOGNISED)
def test_a_head_is_recognised_by_its_tensors(name, tmp_path):
    spec = inspected(published(name), tmp_path)

    assert (spec.kind, spec.format) == RECOGNISED[name]
    assert spec.evidence
    assert spec.unsupported_reason is None


@pytest.mark.parametrize("name", ["eagle3", "mtp-deepseek", "mtp-deepseek_v3-plain", "medusa1"])
def test_without_a_config_the_tensors_are_enough(name, tmp_path):
    golden = published(name)
    folder = golden.save(tmp_path)
    (folder / "config.json").write_text('{"num_attention_heads": 2}')

    spec = inspect_head(folder)

    assert spec.kind == RECOGNISED[name][0]
    assert (spec.dimensions.head_size, spec.target_hidden_size) == (
        {"medusa1": 16, "mtp-deepseek_v3-plain": 6 + 4}.get(name, 8),
        16,
    )


@pytest.mark.parametrize("name", NOT_YET)
def test_what_is_not_supported_yet_is_called_by_its_name(name, tmp_path):
    tensors, config, word = NOT_YET[name]

    spec = inspect_head(stored(tmp_path, tensors, config))

    assert spec.unsupported_reason
    assert word in f"{spec.format}: {spec.unsupported_reason}"
    assert mismatches(spec, TargetDimensions(4, 5, 40))


def test_a_single_file_is_a_head_too(tmp_path):
    folder = published("medusa1").save(tmp_path)

    assert inspect_head(folder / "medusa_lm_head.pt").kind == "medusa"


def test_a_head_inside_the_checkpoint_of_its_target_is_found(tmp_path):
    shutil.copytree(saved("llama"), tmp_path, dirs_exist_ok=True)
    golden = published("mtp-deepseek")
    save_file(golden.head, tmp_path / "model-00002.safetensors")

    spec = inspect_head(tmp_path)

    assert spec.kind == "mtp"
    assert spec.target_layers == 3
    assert all(
        name.startswith(("layers.0.", "join.", "norm.", "feature_", "embedding_")) for name in spec.tensors.locations
    )


def test_a_block_that_was_saved_by_itself_fits_any_depth(tmp_path):
    golden = published("mtp-deepseek")
    alone = {name.replace("layers.3.", "layers.0."): tensor for name, tensor in golden.head.items()}

    spec = inspect_head(stored(tmp_path, alone, golden.config))

    assert mismatches(spec, TargetDimensions(16, 7, 40)) == []


def test_medusa_inside_a_whole_model_is_its_second_version(tmp_path):
    golden = published("medusa1")
    whole = {f"medusa_head.{name}": tensor for name, tensor in golden.head.items()} | {"model.norm.weight": SMALL}

    spec = inspect_head(stored(tmp_path, whole))

    assert (spec.kind, spec.tokens_ahead, spec.format) == ("medusa", 3, "Medusa-2 inside its model")


def test_layerskip_is_known_by_its_name_alone(tmp_path):
    named = shutil.copytree(saved("llama"), tmp_path / "layerskip-llama3.2-1B")

    assert inspect_head(named).kind == "early exit"
    with pytest.raises(ModelError, match="a whole language model"):
        inspect_head(saved("llama"))


class TestTheDraftVocabulary:
    def test_d2t_holds_offsets(self, tmp_path):
        golden = published("eagle3")

        ids = inspected(golden, tmp_path).draft_to_target_ids()

        assert ids.tolist() == golden.head["t2d"].nonzero().flatten().tolist()
        assert ids.tolist() != golden.head["d2t"].tolist()

    def test_ids_in_its_place_are_told_by_t2d(self, tmp_path):
        golden = published("eagle3")
        ids = golden.head["t2d"].nonzero().flatten()

        spec = inspected(golden, tmp_path, head={"d2t": ids})

        assert spec.draft_to_target_ids().tolist() == ids.tolist()
        assert "ids and not offsets" in spec.warnings[0]

    def test_without_t2d_it_is_offsets(self, tmp_path):
        golden = published("eagle3")

        spec = inspected(golden, tmp_path, head={"t2d": None})

        assert spec.draft_to_target_ids().tolist() == (golden.head["d2t"] + torch.arange(24)).tolist()

    @pytest.mark.parametrize(
        ("last", "message"), [(40, "leads to token 63, outside the vocabulary of 40"), (-50, "leads to token -27")]
    )
    def test_a_token_outside_the_vocabulary_is_refused(self, last, message, tmp_path):
        offsets = published("eagle3").head["d2t"].clone()
        offsets[-1] = last

        with pytest.raises(ModelError, match=message):
            inspected(published("eagle3"), tmp_path, head={"d2t": offsets, "t2d": None})

    def test_two_tables_that_disagree_are_refused(self, tmp_path):
        inside = published("eagle3").head["t2d"]

        with pytest.raises(ModelError, match="d2t and t2d disagree"):
            inspected(published("eagle3"), tmp_path, head={"t2d": inside.roll(1)})
        with pytest.raises(ModelError, match="t2d admits 16 tokens, but d2t has 24"):
            inspected(published("eagle3"), tmp_path, head={"t2d": ~inside})

    def test_a_table_that_does_not_ascend_is_refused(self, tmp_path):
        with pytest.raises(ModelError, match="does not ascend"):
            inspected(published("eagle3"), tmp_path, head={"d2t": -torch.arange(24), "t2d": None})


class TestTheTaps:
    def test_where_nothing_is_said_they_are_eagle_3s_own(self, tmp_path):
        spec = inspected(published("eagle3"), tmp_path)

        assert spec.hidden_state_layers_for(32) == (2, 16, 29)
        assert spec.hidden_state_layers_for(36) == (2, 18, 33)
        assert spec.variants == ()

    def test_specforge_names_outputs_of_layers(self, tmp_path):
        said = {"eagle_aux_hidden_state_layer_ids": [1, 15, 28], "use_aux_hidden_state": True}

        assert taps_of(tmp_path, eagle_config=said) == ((2, 16, 29), [(1, 15, 28)])

    def test_others_name_inputs_of_layers(self, tmp_path):
        said = {"eagle_aux_hidden_state_layer_ids": [24, 30, 36]}

        assert taps_of(tmp_path, eagle_config=said) == ((24, 30, 36), [(25, 31, 37)])

    def test_speculators_names_them_as_they_are(self, tmp_path):
        said = {"speculators_model_type": "eagle3", "eagle_aux_hidden_state_layer_ids": [1, 15, 28]}

        assert taps_of(tmp_path, **said) == ((1, 15, 28), [(2, 16, 29)])

    def test_deepspec_counts_five_outputs(self, tmp_path):
        assert inspected(published("deepspec"), tmp_path).hidden_state_layers == (2, 3, 4, 5, 6)

    def test_their_number_is_that_of_fc(self, tmp_path):
        with pytest.raises(ModelError, match=r"names 2 taps \(\[1, 3\]\), but fc reads 3"):
            inspected(published("eagle3"), tmp_path, eagle_config={"eagle_aux_hidden_state_layer_ids": [1, 3]})
        with pytest.raises(ModelError, match="5 taps, and the config does not say which"):
            inspected(published("eagle3"), tmp_path, head={"fc.weight": torch.zeros(16, 80)})
        with pytest.raises(ModelError, match="no whole number of states"):
            inspected(published("eagle3"), tmp_path, head={"fc.weight": torch.zeros(16, 50)})


class TestTheRest:
    @pytest.mark.parametrize(
        ("name", "base"), [("eagle3", 10000.0), ("eagle3-theta", 500000.0), ("angelslim", 10000.0), ("specforge", 1e6)]
    )
    def test_the_base_of_the_rope_is_the_heads_own(self, name, base, tmp_path):
        assert inspected(published(name), tmp_path).rope.theta == base

    def test_norm_output_means_two_things(self, tmp_path):
        plain, fed = published("specforge"), published("speculators-31")

        assert "norm.weight" in inspected(plain, tmp_path / "a", norm_output=True).tensors
        assert "norm.weight" not in inspected(plain, tmp_path / "b", norm_output=False).tensors
        assert not inspected(plain, tmp_path / "c", norm_output=True).wiring.feeds_back_normed
        assert inspected(fed, tmp_path / "d", norm_output=True).wiring.feeds_back_normed
        assert not inspected(fed, tmp_path / "e", norm_output=False).wiring.feeds_back_normed

    def test_shapes_are_right_where_the_config_is_not(self, tmp_path):
        spec = inspected(published("angelslim"), tmp_path)

        assert spec.dimensions.head_size == 8
        assert spec.warnings == ("config.json says head_dim = 5, the tensors say 8; the tensors are right",)

    def test_the_number_of_medusas_heads_is_that_of_the_file(self, tmp_path):
        spec = inspected(published("medusa1"), tmp_path)

        assert spec.tokens_ahead == 3
        assert "config.json says 2 heads, the file has 3" in spec.warnings[0]

    def test_a_tied_output_is_the_heads_own_embeddings(self, tmp_path):
        golden = published("speculators-31")
        nested = golden.config["transformer_layer_config"] | {"tie_word_embeddings": True}

        tied = inspected(golden, tmp_path / "a", head={"lm_head.weight": None}, transformer_layer_config=nested)
        borrowed = inspected(golden, tmp_path / "b", head={"lm_head.weight": None})
        own = inspected(golden, tmp_path / "c", transformer_layer_config=nested)

        assert torch.equal(tied.tensors.read_tensor("lm_head.weight"), golden.head["embed_tokens.weight"])
        assert "lm_head.weight" not in borrowed.tensors
        assert torch.equal(own.tensors.read_tensor("lm_head.weight"), golden.head["lm_head.weight"])

    def test_flags_of_modelopt_that_change_the_network_are_not_passed_over(self, tmp_path):
        spec = inspected(published("eagle3"), tmp_path, eagle_config={"next_layer_regular": True})

        assert spec.unsupported_reason == "ModelOpt's next_layer_regular"

    def test_an_activation_that_is_another_is_named(self, tmp_path):
        spec = inspected(published("eagle1"), tmp_path, hidden_act="gelu_pytorch_tanh")

        assert spec.unsupported_reason == "layers with the activation gelu_pytorch_tanh"

    def test_gemma_4s_own_attention_is_named(self, tmp_path):
        spec = inspected(published("deepspec"), tmp_path, architectures=["Gemma4Eagle3Model"])

        assert spec.unsupported_reason.startswith("Gemma-4's attention")

    def test_norms_of_some_taps_only_are_refused(self, tmp_path):
        with pytest.raises(ModelError, match=r"a part of the head is missing: fc_norm\.1\.weight"):
            inspected(published("specforge-norms"), tmp_path, head={"fc_norm.1.weight": None})

    def test_a_rope_that_nobody_computes_is_named(self, tmp_path):
        spec = inspected(published("eagle3"), tmp_path, rope_scaling={"type": "longrope", "factor": 4.0})

        assert spec.unsupported_reason == "rotary embeddings of kind longrope"

    def test_what_mtp_feeds_back_has_two_readings_until_it_is_said(self, tmp_path):
        golden = published("mtp-deepseek")

        assert len(inspected(golden, tmp_path / "a").variants) == 1
        assert inspected(golden, tmp_path / "b", mtp_hidden_states="post_norm").variants == ()


class TestABlock:
    def test_zlab_names_outputs_of_layers_and_speculators_inputs(self, tmp_path):
        ours = inspected(published("dflash"), tmp_path / "a")
        others = inspected(published("speculators-dflash"), tmp_path / "b")

        assert (ours.hidden_state_layers, [other.hidden_state_layers for other in ours.variants]) == ((2, 5), [(1, 4)])
        assert (others.hidden_state_layers, [other.hidden_state_layers for other in others.variants]) == (
            (2, 5),
            [(3, 6)],
        )

    def test_where_nothing_is_said_taps_are_spread_over_the_target(self, tmp_path):
        spec = inspected(published("dflash"), tmp_path, dflash_config={"mask_token_id": 39}, num_target_layers=36)

        assert spec.hidden_state_layers == (2, 34)

    def test_its_places_are_one_fewer_than_its_slots_unless_the_first_guesses_too(self, tmp_path):
        assert inspected(published("dflash"), tmp_path / "a").tokens_ahead == 3
        assert inspected(published("speculators-dflash-anchor"), tmp_path / "b").tokens_ahead == 4

    def test_settings_stand_in_a_table_of_their_own_or_beside_the_others(self, tmp_path):
        flat = {"mask_token_id": 38, "target_layer_ids": [0, 3], "dflash_config": None}

        spec = inspected(published("dflash"), tmp_path, **flat)

        assert (spec.hidden_state_layers, spec.block_config.mask_token_id, spec.block_config.block_size) == (
            (1, 4),
            38,
            4,
        )

    @pytest.mark.parametrize("mask", [-1, 40])
    def test_a_mask_outside_the_vocabulary_is_refused(self, mask, tmp_path):
        said = {"mask_token_id": mask, "target_layer_ids": [1, 4]}

        with pytest.raises(ModelError, match=f"its mask is token {mask}, outside the vocabulary of 40"):
            inspected(published("dflash"), tmp_path, dflash_config=said)

    def test_a_block_without_a_place_to_guess_is_refused(self, tmp_path):
        with pytest.raises(ModelError, match="block_size 1 leaves no place to guess"):
            inspected(published("dflash"), tmp_path, block_size=1)

    def test_their_number_is_that_of_fc(self, tmp_path):
        said = {"mask_token_id": 39, "target_layer_ids": [1, 3, 4]}

        with pytest.raises(ModelError, match=r"names 3 taps \(\[1, 3, 4\]\), but fc reads 2"):
            inspected(published("dflash"), tmp_path, dflash_config=said)
        with pytest.raises(ModelError, match="2 taps, and the config does not say which"):
            inspected(published("dflash"), tmp_path, dflash_config={"mask_token_id": 39}, num_target_layers=None)
        with pytest.raises(ModelError, match=r"fc\.weight \[16, 40\] is no whole number of states of 16"):
            inspected(published("dflash"), tmp_path, head={"fc.weight": torch.zeros(16, 40)})

    def test_a_table_of_tokens_needs_an_output_matrix_of_its_own(self, tmp_path):
        with pytest.raises(ModelError, match=r"a part of the head is missing: lm_head\.weight"):
            inspected(published("speculators-dflash"), tmp_path, head={"lm_head.weight": None})


class TestExperts:
    def test_an_expert_that_was_left_behind_is_named(self, tmp_path):
        lost = "mlp.experts.5.up_proj.weight"

        with pytest.raises(ModelError, match=rf"a part of the head is missing: layers\.0\.{lost}"):
            inspected(published("mtp-glm4_moe"), tmp_path, head={f"model.layers.3.{lost}": None})

    def test_a_router_for_other_experts_is_refused(self, tmp_path):
        router = torch.zeros(5, 16)

        with pytest.raises(ModelError, match="its router chooses among 5 experts, and there are 6"):
            inspected(published("mtp-qwen3_5_moe_text"), tmp_path, head={"mtp.layers.0.mlp.gate.weight": router})

    @pytest.mark.parametrize("said", [{"n_group": 3}, {"num_experts_per_tok": 5}, {"topk_group": 9}], ids=str)
    def test_more_than_there_are_cannot_be_chosen(self, said, tmp_path):
        with pytest.raises(ModelError, match="of 8 experts cannot be chosen out of"):
            inspected(published("mtp-glm4_moe"), tmp_path, **said)


class TestLatents:
    LOST = ("q_a_layernorm", "q_b_proj", "kv_a_layernorm", "kv_b_proj", "o_proj")

    def test_their_sizes_are_those_of_the_shapes(self, tmp_path):
        golden = published("mtp-deepseek_v3")

        spec = inspected(golden, tmp_path, kv_lora_rank=99, num_attention_heads=None)

        assert spec.dimensions.mla == MlaDimensions(
            heads=3, kv_lora_rank=12, qk_nope_head_dim=6, qk_rope_head_dim=4, v_head_dim=5, q_lora_rank=10
        )
        assert spec.warnings[0] == "config.json says kv_lora_rank = 99, the tensors say 12; the tensors are right"
        assert "3 heads ask latents of 12 numbers and a turned key of 4" in spec.evidence[-1]

    @pytest.mark.parametrize("lost", LOST)
    def test_a_part_that_was_left_behind_is_named(self, lost, tmp_path):
        with pytest.raises(ModelError, match=rf"a part of the head is missing: layers\.0\.self_attn\.{lost}\.weight"):
            inspected(published("mtp-deepseek_v3"), tmp_path, head={f"model.layers.3.self_attn.{lost}.weight": None})

    @pytest.mark.parametrize("name", ["q_b_proj", "kv_b_proj", "kv_a_proj_with_mqa"])
    def test_shapes_that_no_size_of_a_head_fits_are_refused(self, name, tmp_path):
        at = f"model.layers.3.self_attn.{name}.weight"
        cut = published("mtp-deepseek_v3").head[at][:-1]

        with pytest.raises(ModelError, match=r"no size of a head fits its projections \(q \d+, kv_a \d+, kv_b \d+"):
            inspected(published("mtp-deepseek_v3"), tmp_path, head={at: cut})

    def test_how_they_turn_is_said_by_the_config_or_by_its_family_or_by_nobody(self, tmp_path):
        golden = published("mtp-deepseek_v3")

        said, known, unsure = (
            inspected(golden, tmp_path / str(number), mtp_hidden_states="post_norm", **changes)
            for number, changes in enumerate(({"rope_interleave": False}, {}, {"model_type": "another"}))
        )

        assert not said.dimensions.mla.is_rope_interleaved
        assert known.dimensions.mla.is_rope_interleaved
        assert said.variants == known.variants == ()
        assert [each.dimensions.mla.is_rope_interleaved for each in (unsure, *unsure.variants)] == [True, False]
        assert "neighbours or halves" in unsure.warnings[0]

    def test_two_doubts_are_four_readings(self, tmp_path):
        spec = inspected(published("mtp-deepseek_v3"), tmp_path, model_type=None)

        read = {
            (each.wiring.feeds_back_normed, each.dimensions.mla.is_rope_interleaved) for each in (spec, *spec.variants)
        }
        assert len(spec.variants) == 3
        assert len(read) == 4

    def test_the_command_says_what_it_is(self, tmp_path, capsys):
        assert run(["models", "inspect", str(published("mtp-deepseek_v3").save(tmp_path))]) == 0

        said = capsys.readouterr().out
        assert "DeepSeek-V3 MTP (mtp)" in said
        assert "heads ask latents" in said
        assert "not supported" not in said


class TestAPairing:
    def test_a_block_head_for_another_target_is_refused_with_both(self, tmp_path):
        spec = inspected(published("dflash"), tmp_path)

        assert mismatches(spec, TargetDimensions(16, 8, 40)) == []
        assert any(
            "width 16" in reason and "24 wide" in reason for reason in mismatches(spec, TargetDimensions(24, 8, 40))
        )
        (reason,) = mismatches(spec, TargetDimensions(16, 6, 40))
        assert reason == "it was trained for a target of 8 layers, and this one has 6"

    def test_the_embedded_heads_fit_the_embedded_target(self):
        facts = target_dimensions(EMBEDDED / "target")

        assert facts == TargetDimensions(256, 12, 8192)
        assert [mismatches(inspect_head(EMBEDDED / head), facts) for head in ("eagle3", "mtp", "medusa")] == [
            [],
            [],
            [],
        ]

    def test_a_head_for_another_width_is_refused_with_both(self, tmp_path):
        spec = inspected(published("eagle3"), tmp_path)

        assert any(
            "width 16" in reason and "24 wide" in reason for reason in mismatches(spec, TargetDimensions(24, 6, 40))
        )

    def test_a_narrow_head_with_embeddings_of_its_own_fits_a_wide_target(self, tmp_path):
        golden = published("eagle3-narrow")

        assert mismatches(inspected(golden, tmp_path / "a"), TargetDimensions(20, 6, 40)) == []
        (reason,) = mismatches(
            inspected(golden, tmp_path / "b", head={"embed_tokens.weight": None}), TargetDimensions(20, 6, 40)
        )
        assert reason == "it borrows the target's embeddings, but is 16 wide and the target 20"

    def test_another_vocabulary_is_refused(self, tmp_path):
        (reason,) = mismatches(inspected(published("medusa1"), tmp_path), TargetDimensions(16, 6, 41))

        assert reason == "it speaks of 40 tokens, and the target of 41"

    def test_a_target_of_another_depth_is_refused(self, tmp_path):
        deep = replace(inspected(published("specforge"), tmp_path / "a"), taps=(2, 18, 33))

        assert mismatches(deep, TargetDimensions(16, 32, 40)) == [
            "it reads the target after layers 2, 18, 33, and the target has 32"
        ]
        (reason,) = mismatches(inspected(published("mtp-deepseek"), tmp_path / "b"), TargetDimensions(16, 4, 40))
        assert reason == "it was trained for a target of 3 layers, and this one has 4"

    def test_a_model_with_eyes_tells_of_its_text(self, tmp_path):
        sizes = {"hidden_size": 8, "num_hidden_layers": 2, "vocab_size": 9}
        (tmp_path / "config.json").write_text(json.dumps({"text_config": sizes}))

        assert target_dimensions(tmp_path) == TargetDimensions(8, 2, 9)


class Bomb:
    """Touches a file when a careless reader builds it."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


class TestBadInput:
    def test_a_pickle_with_more_than_tensors_is_refused_and_never_run(self, tmp_path):
        mark = tmp_path / "mark"
        torch.save({"0.0.linear.weight": SMALL, "more": Bomb(mark)}, tmp_path / "medusa_lm_head.pt")

        with pytest.raises(ModelError, match="refused: this pickle holds more than tensors"):
            inspect_head(tmp_path)
        assert not mark.exists()

    def test_a_bare_pickle_is_refused(self, tmp_path):
        (tmp_path / "pytorch_model.bin").write_bytes(pickle.dumps({"fc.weight": [1, 2]}))

        with pytest.raises(ModelError, match=r"pytorch_model\.bin: (refused|cannot be loaded)"):
            inspect_head(tmp_path)

    @pytest.mark.parametrize("content", [[SMALL], {"fc.weight": SMALL, "epoch": 3}], ids=["a list", "a number"])
    def test_what_is_no_table_of_tensors_is_refused(self, content, tmp_path):
        torch.save(content, tmp_path / "pytorch_model.bin")

        with pytest.raises(ModelError, match="refused"):
            inspect_head(tmp_path)

    def test_a_file_that_was_written_anew_is_read_anew(self, tmp_path):
        golden = published("medusa1")
        first = inspected(golden, tmp_path)
        name = "blocks.0.0.bias"
        old = first.tensors.read_tensor(name).clone()

        again = inspected(golden, tmp_path, head={"0.0.linear.bias": old + 1})

        assert torch.equal(again.tensors.read_tensor(name), old + 1)

    @pytest.mark.parametrize("name", ["eagle3", "medusa1"])
    def test_a_file_that_is_cut_off_is_one_line(self, name, tmp_path):
        golden = published(name)
        path = golden.save(tmp_path) / golden.file
        path.write_bytes(path.read_bytes()[:-2000])

        with pytest.raises(ModelError, match="cannot be loaded") as caught:
            inspect_head(tmp_path)
        assert "\n" not in str(caught.value)

    def test_a_shard_that_was_left_behind_is_named(self, tmp_path):
        with pytest.raises(ModelError, match=r"a part of the head is missing: layers\.0\.mlp\.up_proj\.weight"):
            inspected(published("eagle3"), tmp_path, head={"midlayer.mlp.up_proj.weight": None})
        with pytest.raises(ModelError, match=r"lm_head\.weight, which d2t belongs to"):
            inspected(published("eagle3"), tmp_path, head={"lm_head.weight": None})
        with pytest.raises(ModelError, match="2 output matrices for 3 columns"):
            inspected(published("medusa1"), tmp_path / "medusa", head={"1.1.weight": None})

    def test_projections_that_no_heads_fit_are_refused(self, tmp_path):
        odd = {"midlayer.self_attn.k_proj.weight": torch.zeros(7, 32)}

        with pytest.raises(ModelError, match="no size of a head fits its projections"):
            inspected(published("eagle3"), tmp_path, head=odd)

    def test_a_matrix_that_is_none_is_refused(self, tmp_path):
        with pytest.raises(ModelError, match=r"fc\.weight \[5\] is no matrix"):
            inspected(published("eagle3"), tmp_path, head={"fc.weight": torch.zeros(5)})

    def test_a_config_that_says_what_cannot_be_is_one_line(self, tmp_path):
        with pytest.raises(ModelError, match="says what cannot be"):
            inspected(published("eagle3"), tmp_path, num_attention_heads="many")

    def test_folders_without_heads_say_what_is_there(self, tmp_path):
        with pytest.raises(ModelError, match="no head there: neither"):
            inspect_head(tmp_path)
        with pytest.raises(ModelError, match=r"its tensors \(a, b, …\) are of no kind that we know"):
            inspect_head(stored(tmp_path / "x", {"a": SMALL, "b": SMALL}))
        with pytest.raises(ModelError, match="no such folder or file"):
            inspect_head(tmp_path / "gone")

    def test_a_config_that_is_no_table_is_one_line(self, tmp_path):
        published("eagle3").save(tmp_path)
        for content in ("{", "[]"):
            (tmp_path / "config.json").write_text(content)
            with pytest.raises(ModelError, match=r"config\.json: cannot be read"):
                inspect_head(tmp_path)


class TestTheCommand:
    def test_it_says_what_it_is_why_and_that_it_fits(self, capsys):
        assert run(["models", "inspect", "embedded/eagle3", "--target", "embedded"]) == 0

        printed = capsys.readouterr().out
        assert "SafeAILab EAGLE-3" in printed
        assert "fc.weight [256, 768]: 3 taps of width 256" in printed
        assert "4096 of 8192 tokens" in printed
        assert "fits" in printed

    def test_a_wrong_pairing_is_refused(self, tmp_path, capsys):
        folder = published("eagle3").save(tmp_path)

        assert run(["models", "inspect", str(folder), "--target", "embedded"]) == 7

        said = capsys.readouterr()
        assert "width 16" in said.err
        assert "256 wide" in said.err
        assert said.err.count("\n") == 1

    def test_what_is_not_supported_yet_can_be_looked_at(self, tmp_path, capsys):
        folder = stored(tmp_path, *NOT_YET["dflash"][:2])

        assert run(["models", "inspect", str(folder)]) == 0
        assert "not supported yet: its config does not say which token is its mask" in capsys.readouterr().out
        assert run(["models", "inspect", str(folder), "--target", "embedded"]) == 7

    def test_no_head_is_exit_7_and_no_sense_is_exit_2(self, capsys):
        assert run(["models", "inspect", "/nowhere/at/all"]) == 7
        assert run(["models", "inspect", "embedded/target"]) == 7
        assert run(["models", "inspect", "embedded/gone"]) == 7
        assert run(["models", "inspect", "embedded/mtp", "--test"]) == 2
        assert capsys.readouterr().err.count("specchat: ") == 4


def test_an_embedded_head_is_found_by_its_name():
    assert find_head("embedded/eagle3") == EMBEDDED / "eagle3"
    assert load_file(find_head("embedded/medusa") / "medusa_lm_head.safetensors")
