"""The detection of heads: every format, the ambiguities of its config, and one clear error line for other folders."""

import json
import pickle
import shutil
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file

from specchat.drafters.heads.detect import inspect_head, target_dimensions
from specchat.drafters.heads.spec import TargetDimensions, mismatches
from specchat.errors import ModelError
from specchat.hub.find_models import find_model
from specchat.weights.load_options import EMBEDDED
from tests.drafters.published import inspected, published
from tests.tiny import saved

DETECTED = {
    "eagle3": ("eagle3", "SafeAILab EAGLE-3"),
    "angelslim": ("eagle3", "AngelSlim EAGLE-3"),
    "specforge": ("eagle3", "SpecForge EAGLE-3"),
    "deepspec": ("eagle3", "DeepSpec EAGLE-3"),
    "speculators-plain": ("eagle3", "speculators EAGLE-3"),
    "mtp-deepseek": ("mtp", "DeepSeek-V3 MTP"),
    "mtp-qwen3_next": ("mtp", "Qwen3-Next MTP"),
    "mtp-qwen3_5_text": ("mtp", "Qwen3-Next MTP"),
    "mtp-qwen3_next-experts": ("mtp", "Qwen3-Next MTP"),
}
SMALL = torch.zeros(4, 4)
PREFIX = "model.layers.5."
PICKLED = replace(published("eagle3"), file="pytorch_model.bin")
INSTALL = "is of a plugin; in a clone of specchat, 'pip install ./plugins/specchat-heads' installs it"
UNSUPPORTED = {  # tensors, config, and a part of the message
    "dflash": ({"fc.weight": torch.zeros(4, 20), "hidden_norm.weight": SMALL}, {}, f"DFlash {INSTALL}"),
    "dflash by name": ({"x": SMALL}, {"architectures": ["DFlashDraftModel"]}, f"DFlash {INSTALL}"),
    "dflash by its settings": ({"x": SMALL}, {"dflash_config": {"mask_token_id": 3}}, f"DFlash {INSTALL}"),
    "dflash of speculators": ({"x": SMALL}, {"speculators_model_type": "dflash"}, f"DFlash {INSTALL}"),
    "dflash 2": (
        {"candidate_selector.x": SMALL}, {"dflash_config": {}}, f"DFlash-2 {INSTALL}",
    ),
    "dspark": (
        {"fc.weight": SMALL, "hidden_norm.weight": SMALL, "markov_head.x": SMALL}, {},
        f"DSpark {INSTALL}",
    ),
    "domino": ({"domino_gru.weight": SMALL}, {"architectures": ["DominoDraftModel"]}, "Domino"),
    "hydra": ({"hydra_mlp.0.0.linear.weight": SMALL}, {}, f"Hydra {INSTALL}"),
    "medusa": ({"medusa_head.0.0.linear.weight": SMALL}, {}, f"Medusa {INSTALL}"),
    "medusa by name": ({"x": SMALL}, {"medusa_num_heads": 3}, f"Medusa {INSTALL}"),
    "eagle": ({"fc.weight": torch.zeros(4, 8)}, {}, f"EAGLE-1 {INSTALL}"),
    "eagle of speculators": (
        {"fusion_fc.weight": torch.zeros(4, 8)}, {"speculators_model_type": "eagle"},
        f"EAGLE-1 {INSTALL}",
    ),
    "p-eagle": ({"mask_hidden": SMALL}, {}, f"P-EAGLE {INSTALL}"),
    "assistant": ({"pre_projection.weight": SMALL}, {}, f"Gemma 4 assistant {INSTALL}"),
    "assistant by name": (
        {"x": SMALL}, {"architectures": ["Gemma4AssistantForCausalLM"]}, f"Gemma 4 assistant {INSTALL}",
    ),
    "mtp of MiMo": ({"model.mtp_layers.0.input_proj.weight": SMALL}, {}, f"MTP of MiMo and speculators {INSTALL}"),
    "mtp of speculators": ({"mtp_layers.0.input_proj.weight": SMALL}, {"speculators_model_type": "mtp"}, INSTALL),
    "mlp": ({"x": SMALL}, {"speculators_model_type": "mlp"}, "speculators mlp"),
    "experts": (
        {f"{PREFIX}eh_proj.weight": torch.zeros(4, 8), f"{PREFIX}mlp.experts.0.up_proj.weight": SMALL}, {},
        "mixture of experts with a routing that is not verified",
    ),
    "experts with the routing of DeepSeek-V3": (
        {f"{PREFIX}eh_proj.weight": torch.zeros(4, 8), f"{PREFIX}mlp.gate.e_score_correction_bias": SMALL},
        {}, "layers of DeepSeek-V3 are of a plugin; in a clone of specchat, 'pip install ./plugins/specchat-heads'",
    ),
    "latent attention": (
        {f"{PREFIX}eh_proj.weight": torch.zeros(4, 8), f"{PREFIX}self_attn.kv_a_proj_with_mqa.weight": SMALL}, {},
        "layers of DeepSeek-V3 are of a plugin",
    ),
    "two layers": (
        {"mtp.fc.weight": torch.zeros(4, 8), "mtp.layers.0.x.weight": SMALL, "mtp.layers.1.x.weight": SMALL}, {},
        "more than one MTP layer",
    ),
    "an indexer": (
        {f"{PREFIX}eh_proj.weight": torch.zeros(4, 8), f"{PREFIX}self_attn.indexer.wk.weight": SMALL}, {},
        "sparse attention with an indexer",
    ),
}  # fmt: skip


def stored(folder, tensors, config=None):
    folder.mkdir(parents=True, exist_ok=True)
    save_file({name: tensor.clone() for name, tensor in tensors.items()}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config or {}))
    return folder


def layers_of(folder, **config):
    """The hidden state layers of a config, and those of its other variants."""
    spec = inspected(published("eagle3"), folder, **config)
    return spec.hidden_state_layers, [variant.hidden_state_layers for variant in spec.variants]


@pytest.mark.parametrize("name", DETECTED)
def test_a_head_is_detected_by_its_tensors(name, tmp_path):
    spec = inspected(published(name), tmp_path)

    assert (spec.kind, spec.format) == DETECTED[name]
    assert spec.evidence
    assert spec.unsupported_reason is None


@pytest.mark.parametrize("name", ["eagle3", "mtp-deepseek"])
def test_the_tensors_are_enough_without_a_config(name, tmp_path):
    golden = published(name)
    folder = golden.save(tmp_path)
    (folder / "config.json").write_text('{"num_attention_heads": 2}')

    spec = inspect_head(folder)

    assert spec.kind == DETECTED[name][0]
    assert (spec.dimensions.head_size, spec.target_hidden_size) == (8, 16)


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_an_unsupported_head_is_named(name, tmp_path):
    tensors, config, text = UNSUPPORTED[name]

    spec = inspect_head(stored(tmp_path, tensors, config))

    assert spec.unsupported_reason
    assert text in f"{spec.format}: {spec.unsupported_reason}"
    assert mismatches(spec, TargetDimensions(4, 5, 40))


def test_a_single_file_can_be_a_head(tmp_path):
    golden = published("eagle3")

    assert inspect_head(golden.save(tmp_path) / golden.file).kind == "eagle3"


def test_a_head_in_the_checkpoint_of_its_target_is_detected(tmp_path):
    shutil.copytree(saved("llama"), tmp_path, dirs_exist_ok=True)
    golden = published("mtp-deepseek")
    save_file(golden.head, tmp_path / "model-00002.safetensors")

    spec = inspect_head(tmp_path)

    assert spec.kind == "mtp"
    assert spec.target_layers == 3
    assert all(
        name.startswith(("layers.0.", "join.", "norm.", "feature_", "embedding_")) for name in spec.tensors.locations
    )


def test_an_mtp_layer_saved_without_its_target_fits_every_depth(tmp_path):
    golden = published("mtp-deepseek")
    alone = {name.replace("layers.3.", "layers.0."): tensor for name, tensor in golden.head.items()}

    spec = inspect_head(stored(tmp_path, alone, golden.config))

    assert mismatches(spec, TargetDimensions(16, 7, 40)) == []


def test_a_complete_model_is_no_head():
    with pytest.raises(ModelError, match="a complete language model"):
        inspect_head(saved("llama"))


class TestTheDraftVocabulary:
    def test_d2t_holds_offsets(self, tmp_path):
        golden = published("eagle3")

        ids = inspected(golden, tmp_path).draft_to_target_ids()

        assert ids.tolist() == golden.head["t2d"].nonzero().flatten().tolist()
        assert ids.tolist() != golden.head["d2t"].tolist()

    def test_t2d_shows_that_d2t_has_ids(self, tmp_path):
        golden = published("eagle3")
        ids = golden.head["t2d"].nonzero().flatten()

        spec = inspected(golden, tmp_path, head={"d2t": ids})

        assert spec.draft_to_target_ids().tolist() == ids.tolist()
        assert "ids instead of offsets" in spec.warnings[0]

    def test_without_t2d_it_is_offsets(self, tmp_path):
        golden = published("eagle3")

        spec = inspected(golden, tmp_path, head={"t2d": None})

        assert spec.draft_to_target_ids().tolist() == (golden.head["d2t"] + torch.arange(24)).tolist()

    @pytest.mark.parametrize(
        ("last", "message"), [(40, "contains token 63, outside the vocabulary of 40"), (-50, "contains token -27")]
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
        with pytest.raises(ModelError, match="t2d contains 16 tokens, but d2t has 24"):
            inspected(published("eagle3"), tmp_path, head={"t2d": ~inside})

    def test_a_table_without_ascending_order_is_refused(self, tmp_path):
        with pytest.raises(ModelError, match="not in ascending order"):
            inspected(published("eagle3"), tmp_path, head={"d2t": -torch.arange(24), "t2d": None})


class TestHiddenStateLayers:
    def test_the_default_is_eagle_3s_own_three(self, tmp_path):
        spec = inspected(published("eagle3"), tmp_path)

        assert spec.hidden_state_layers_for(32) == (2, 16, 29)
        assert spec.hidden_state_layers_for(36) == (2, 18, 33)
        assert spec.variants == ()

    def test_specforge_counts_outputs_of_layers(self, tmp_path):
        config = {"eagle_aux_hidden_state_layer_ids": [1, 15, 28], "use_aux_hidden_state": True}

        assert layers_of(tmp_path, eagle_config=config) == ((2, 16, 29), [(1, 15, 28)])

    def test_other_publishers_count_inputs_of_layers(self, tmp_path):
        config = {"eagle_aux_hidden_state_layer_ids": [24, 30, 36]}

        assert layers_of(tmp_path, eagle_config=config) == ((24, 30, 36), [(25, 31, 37)])

    def test_speculators_counts_inputs_of_layers(self, tmp_path):
        config = {"speculators_model_type": "eagle3", "eagle_aux_hidden_state_layer_ids": [1, 15, 28]}

        assert layers_of(tmp_path, **config) == ((1, 15, 28), [(2, 16, 29)])

    def test_deepspec_counts_five_outputs(self, tmp_path):
        assert inspected(published("deepspec"), tmp_path).hidden_state_layers == (2, 3, 4, 5, 6)

    def test_their_number_must_match_fc(self, tmp_path):
        with pytest.raises(ModelError, match=r"has 2 layers \(\[1, 3\]\), but fc reads 3"):
            inspected(published("eagle3"), tmp_path, eagle_config={"eagle_aux_hidden_state_layer_ids": [1, 3]})
        with pytest.raises(ModelError, match="fc reads 5 hidden states, but the config has no layers"):
            inspected(published("eagle3"), tmp_path, head={"fc.weight": torch.zeros(16, 80)})
        with pytest.raises(ModelError, match="not a multiple of the hidden size 16"):
            inspected(published("eagle3"), tmp_path, head={"fc.weight": torch.zeros(16, 50)})


class TestOtherSettings:
    @pytest.mark.parametrize(
        ("name", "base"), [("eagle3", 10000.0), ("eagle3-theta", 500000.0), ("angelslim", 10000.0), ("specforge", 1e6)]
    )
    def test_the_rope_base_is_the_heads_own(self, name, base, tmp_path):
        assert inspected(published(name), tmp_path).rope.theta == base

    def test_norm_output_has_two_meanings(self, tmp_path):
        specforge, speculators = published("specforge"), published("speculators-31")

        assert "norm.weight" in inspected(specforge, tmp_path / "a", norm_output=True).tensors
        assert "norm.weight" not in inspected(specforge, tmp_path / "b", norm_output=False).tensors
        assert not inspected(specforge, tmp_path / "c", norm_output=True).wiring.feeds_back_normed
        assert inspected(speculators, tmp_path / "d", norm_output=True).wiring.feeds_back_normed
        assert not inspected(speculators, tmp_path / "e", norm_output=False).wiring.feeds_back_normed

    def test_shapes_override_the_config(self, tmp_path):
        spec = inspected(published("angelslim"), tmp_path)

        assert spec.dimensions.head_size == 8
        assert spec.warnings == ("config.json has head_dim = 5, the tensors have 8; the tensors are used",)

    def test_a_tied_lm_head_is_the_heads_own_embeddings(self, tmp_path):
        golden = published("speculators-31")
        nested = golden.config["transformer_layer_config"] | {"tie_word_embeddings": True}

        tied = inspected(golden, tmp_path / "a", head={"lm_head.weight": None}, transformer_layer_config=nested)
        shared = inspected(golden, tmp_path / "b", head={"lm_head.weight": None})
        own = inspected(golden, tmp_path / "c", transformer_layer_config=nested)

        assert torch.equal(tied.tensors.read_tensor("lm_head.weight"), golden.head["embed_tokens.weight"])
        assert "lm_head.weight" not in shared.tensors
        assert torch.equal(own.tensors.read_tensor("lm_head.weight"), golden.head["lm_head.weight"])

    def test_flags_of_modelopt_that_change_the_network_are_unsupported(self, tmp_path):
        spec = inspected(published("eagle3"), tmp_path, eagle_config={"next_layer_regular": True})

        assert spec.unsupported_reason == "ModelOpt's next_layer_regular"

    def test_another_activation_is_named(self, tmp_path):
        spec = inspected(published("eagle3"), tmp_path, hidden_act="gelu_pytorch_tanh")

        assert spec.unsupported_reason == "layers with the activation gelu_pytorch_tanh"

    def test_gemma_4s_attention_is_named(self, tmp_path):
        spec = inspected(published("deepspec"), tmp_path, architectures=["Gemma4Eagle3Model"])

        assert spec.unsupported_reason.startswith("Gemma-4's attention")

    def test_norms_of_some_hidden_states_only_are_refused(self, tmp_path):
        with pytest.raises(ModelError, match=r"a part of the head is missing: fc_norm\.1\.weight"):
            inspected(published("specforge-norms"), tmp_path, head={"fc_norm.1.weight": None})

    def test_an_unsupported_rope_type_is_named(self, tmp_path):
        spec = inspected(published("eagle3"), tmp_path, rope_scaling={"type": "longrope", "factor": 4.0})

        assert spec.unsupported_reason == "rotary embeddings of type longrope"

    def test_the_next_input_of_mtp_has_two_variants_without_a_config_key(self, tmp_path):
        golden = published("mtp-deepseek")

        assert len(inspected(golden, tmp_path / "a").variants) == 1
        assert inspected(golden, tmp_path / "b", mtp_hidden_states="post_norm").variants == ()


class TestExperts:
    def test_a_missing_expert_is_named(self, tmp_path):
        missing = "mlp.experts.5.up_proj.weight"

        with pytest.raises(ModelError, match=rf"a part of the head is missing: layers\.0\.{missing}"):
            inspected(published("mtp-qwen3_next-experts"), tmp_path, head={f"mtp.layers.0.{missing}": None})

    def test_a_router_for_another_number_of_experts_is_refused(self, tmp_path):
        router = torch.zeros(5, 16)

        with pytest.raises(ModelError, match="the router is for 5 experts, but there are 6"):
            inspected(published("mtp-qwen3_5_moe_text"), tmp_path, head={"mtp.layers.0.mlp.gate.weight": router})

    @pytest.mark.parametrize("count", [None, 7])
    def test_selecting_more_experts_than_there_are_is_refused(self, count, tmp_path):
        with pytest.raises(ModelError, match=f"{count or 0} of 6 experts cannot be selected"):
            inspected(published("mtp-qwen3_next-experts"), tmp_path, num_experts_per_tok=count)


class TestMismatches:
    def test_the_embedded_heads_fit_the_embedded_target(self):
        dimensions = target_dimensions(EMBEDDED / "target")

        assert dimensions == TargetDimensions(256, 12, 8192)
        assert [mismatches(inspect_head(EMBEDDED / head), dimensions) for head in ("eagle3", "mtp")] == [[], []]

    def test_a_head_for_another_hidden_size_is_refused_with_both_sizes(self, tmp_path):
        spec = inspected(published("eagle3"), tmp_path)

        assert any(
            "size 16" in reason and "has 24" in reason for reason in mismatches(spec, TargetDimensions(24, 6, 40))
        )

    def test_a_narrow_head_with_its_own_embeddings_fits_a_wide_target(self, tmp_path):
        golden = published("eagle3-narrow")

        assert mismatches(inspected(golden, tmp_path / "a"), TargetDimensions(20, 6, 40)) == []
        (reason,) = mismatches(
            inspected(golden, tmp_path / "b", head={"embed_tokens.weight": None}), TargetDimensions(20, 6, 40)
        )
        assert reason == "it uses the target's embeddings, but has hidden size 16 and the target 20"

    def test_another_vocabulary_is_refused(self, tmp_path):
        (reason,) = mismatches(inspected(published("eagle3"), tmp_path), TargetDimensions(16, 6, 41))

        assert reason == "its target vocabulary has 40 tokens, but the target's has 41"

    def test_a_target_of_another_depth_is_refused(self, tmp_path):
        deep = replace(inspected(published("specforge"), tmp_path / "a"), hidden_state_layers=(2, 18, 33))

        assert mismatches(deep, TargetDimensions(16, 32, 40)) == [
            "it needs hidden states after the layers 2, 18, 33, but the target has 32"
        ]
        (reason,) = mismatches(inspected(published("mtp-deepseek"), tmp_path / "b"), TargetDimensions(16, 4, 40))
        assert reason == "it was trained for a target with 3 layers, but this one has 4"

    def test_a_multimodal_model_has_the_sizes_of_its_text_config(self, tmp_path):
        sizes = {"hidden_size": 8, "num_hidden_layers": 2, "vocab_size": 9, "num_attention_heads": 2}
        (tmp_path / "config.json").write_text(json.dumps({"text_config": sizes}))

        assert target_dimensions(tmp_path) == TargetDimensions(8, 2, 9)


class Bomb:
    """Creates a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


class TestInvalidInput:
    def test_a_pickle_with_more_than_tensors_is_refused_and_never_executed(self, tmp_path):
        mark = tmp_path / "mark"
        torch.save({"0.0.linear.weight": SMALL, "more": Bomb(mark)}, tmp_path / "pytorch_model.bin")

        with pytest.raises(ModelError, match="refused: this pickle contains more than tensors"):
            inspect_head(tmp_path)
        assert not mark.exists()

    def test_a_bare_pickle_is_refused(self, tmp_path):
        (tmp_path / "pytorch_model.bin").write_bytes(pickle.dumps({"fc.weight": [1, 2]}))

        with pytest.raises(ModelError, match=r"pytorch_model\.bin: (refused|cannot be loaded)"):
            inspect_head(tmp_path)

    @pytest.mark.parametrize("content", [[SMALL], {"fc.weight": SMALL, "epoch": 3}], ids=["a list", "a number"])
    def test_a_pickle_without_a_dict_of_tensors_is_refused(self, content, tmp_path):
        torch.save(content, tmp_path / "pytorch_model.bin")

        with pytest.raises(ModelError, match="refused"):
            inspect_head(tmp_path)

    def test_a_changed_file_is_read_again(self, tmp_path):
        golden = PICKLED
        first = inspected(golden, tmp_path)
        name = "fc.weight"
        old = first.tensors.read_tensor(name).clone()

        again = inspected(golden, tmp_path, head={name: old + 1})

        assert torch.equal(again.tensors.read_tensor(name), old + 1)

    @pytest.mark.parametrize("golden", [published("eagle3"), PICKLED], ids=lambda golden: golden.file)
    def test_a_truncated_file_is_one_error_line(self, golden, tmp_path):
        path = golden.save(tmp_path) / golden.file
        path.write_bytes(path.read_bytes()[:-2000])

        with pytest.raises(ModelError, match="cannot be loaded") as caught:
            inspect_head(tmp_path)
        assert "\n" not in str(caught.value)

    def test_a_missing_shard_is_named(self, tmp_path):
        with pytest.raises(ModelError, match=r"a part of the head is missing: layers\.0\.mlp\.up_proj\.weight"):
            inspected(published("eagle3"), tmp_path, head={"midlayer.mlp.up_proj.weight": None})
        with pytest.raises(ModelError, match=r"lm_head\.weight, which d2t needs"):
            inspected(published("eagle3"), tmp_path, head={"lm_head.weight": None})

    def test_projections_that_no_head_size_fits_are_refused(self, tmp_path):
        odd = {"midlayer.self_attn.k_proj.weight": torch.zeros(7, 32)}

        with pytest.raises(ModelError, match="no head size fits the projections"):
            inspected(published("eagle3"), tmp_path, head=odd)

    def test_a_vector_instead_of_a_matrix_is_refused(self, tmp_path):
        with pytest.raises(ModelError, match=r"fc\.weight \[5\] is not a matrix"):
            inspected(published("eagle3"), tmp_path, head={"fc.weight": torch.zeros(5)})

    def test_a_config_with_an_invalid_value_is_one_error_line(self, tmp_path):
        with pytest.raises(ModelError, match="has an invalid value"):
            inspected(published("eagle3"), tmp_path, num_attention_heads="many")

    def test_the_error_for_other_folders_names_their_content(self, tmp_path):
        with pytest.raises(ModelError, match=r"not a head: it has no \*\.safetensors"):
            inspect_head(tmp_path)
        with pytest.raises(ModelError, match=r"its tensors \(a, b, …\) have no known format"):
            inspect_head(stored(tmp_path / "x", {"a": SMALL, "b": SMALL}))
        with pytest.raises(ModelError, match="no such folder or file"):
            inspect_head(tmp_path / "gone")

    def test_a_config_that_is_not_an_object_is_one_error_line(self, tmp_path):
        published("eagle3").save(tmp_path)
        for content in ("{", "[]"):
            (tmp_path / "config.json").write_text(content)
            with pytest.raises(ModelError, match=r"config\.json: cannot be read"):
                inspect_head(tmp_path)


def test_an_embedded_head_is_found_by_its_name():
    assert find_model("embedded/eagle3", "head") == EMBEDDED / "eagle3"
    assert load_file(find_model("embedded/mtp", "head") / "model.safetensors")
