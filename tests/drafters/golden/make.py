"""Run the code of the publishers and save its outputs: one small file of tensors for each head format.

Not part of the tests: it needs the publishers' packages, which pin conflicting versions. Use a separate virtual
environment (`pip install --no-deps speculators eagle-llm medusa-llm specforge angelslim`, then the packages that their
imports need), with the repository on the path:

    python tests/drafters/golden/make.py [SOURCE OF SafeAILab/EAGLE, OF deepseek-ai/DeepSpec, OF zankner/Hydra]

where a source is a folder with the files of the repository and its commit in a file COMMIT, and once more with
speculators 0.1.0, the last version that computes EAGLE-1.

Every file has the checkpoint with the publisher's names (`head.*`), what it uses of a target (`target.*`), the inputs
(`features` [L, layers * D], `tokens` [L], the tokens after these) and the logits: `first` [L, Vd], and `second`, the
next run with its own output as input, for all rows or for the last ones. For block heads, `first` is the block after
FIRST_BLOCK tokens and `second` the block after all of them. Slots of DSpark and DFlash-2 follow the best token of the
slot before; `confidence` [2, slots] has the logits of DSpark's confidence head. The metadata names the reference code
and its version.
"""

from __future__ import annotations

import importlib
import json
import sys
import types
from importlib.metadata import distribution, version
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn

HERE = Path(__file__).parent
OF_PLUGIN = HERE.parents[2] / "plugins" / "specchat-heads" / "tests" / "golden"
KINDS_OF_PLUGIN = (
    "eagle1",
    "speculators-eagle",
    "medusa",
    "hydra",
    "speculators-peagle",
    "dspark",
    "speculators-dspark",
    "dflash",
    "speculators-dflash",
    "mtp-deepseek_v3",
    "mtp-glm4_moe",
    "mtp-mimo",
)
LENGTH, WIDTH, VOCABULARY, DRAFTED = 6, 16, 40, 24
LLAMA = {
    "hidden_size": WIDTH, "intermediate_size": 24, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8,
    "num_hidden_layers": 1, "vocab_size": VOCABULARY, "rms_norm_eps": 1e-5, "max_position_embeddings": 64,
    "hidden_act": "silu", "pad_token_id": 0, "attention_bias": False, "mlp_bias": False,
}  # fmt: skip


def main(sources: list[str]) -> None:
    torch.manual_seed(11)
    if version("speculators").startswith("0.1."):
        speculators_first("speculators-eagle", layernorms=False, fusion_bias=True)
        speculators_first("speculators-eagle-norms", layernorms=True, fusion_bias=False)
        return
    packaged = importlib.import_module("eagle.model.cnets")
    eagle_first("eagle1-bias", packaged, f"eagle-llm {version('eagle-llm')}: eagle.model.cnets.Model", has_bias=True)
    if sources:
        eagle_from_source(Path(sources[0]))
        deepspec(Path(sources[1]))
        deepspec_dspark(Path(sources[1]))
        hydra(Path(sources[2]))
    angelslim()
    specforge()
    speculators_third("plain", {"norm_before_residual": True})
    speculators_third("gpt", {"norm_before_fc": True})
    speculators_third("31", {"norm_output": True, "fc_norm": True}, family="qwen3", layers=2, whole=True)
    near = {"layer_types": ["full_attention", "sliding_attention"], "sliding_window": 3, "use_sliding_window": True}
    speculators_third("window", {}, family="qwen3", layers=2, nested=near)
    for family in ("qwen3", "qwen3_next", "qwen3_5_text"):
        speculators_mtp(family)
    transformers_mtp("deepseek", "llama", first=False)
    transformers_mtp("mimo", "qwen2", first=True)
    medusa()
    blocks()
    experts()
    latents()
    parallel_heads()


def parallel_heads() -> None:
    """P-EAGLE, whose depths are one pass, and DFlash-2."""
    torch.manual_seed(81)
    speculators_peagle("speculators-peagle", {"norm_before_residual": True})
    near = {"layer_types": ["full_attention", "sliding_attention"], "sliding_window": 3, "use_sliding_window": True}
    speculators_peagle("speculators-peagle-window", {"fc_norm": True}, family="qwen3", nested=near)
    sizes = {"conv_kernel_size": 3, "conv_group_size": 4, "selector_rank": 6, "selector_top_k": 5}
    speculators_dflash("speculators-dflash2", sizes, {}, whole=True, method="dflash2")
    near |= {"sliding_window": 2}
    speculators_dflash("speculators-dflash2-window", sizes, near, whole=True, method="dflash2")


def blocks() -> None:
    """DFlash in z-lab's format, computed by the library that trains it, and in speculators' format."""
    near = {"layer_types": ["full_attention", "sliding_attention"], "sliding_window": 4, "use_sliding_window": True}
    specforge_dflash("dflash", {})
    specforge_dflash("dflash-window", near)
    speculators_dflash("speculators-dflash", {}, {})
    speculators_dflash("speculators-dflash-window", {}, near | {"sliding_window": 2})
    speculators_dflash("speculators-dflash-ahead", {"sliding_window_non_causal": True}, near | {"sliding_window": 2})
    speculators_dflash("speculators-dflash-anchor", {"sample_from_anchor": True}, {}, whole=True)
    torch.manual_seed(71)
    own_place = {"sample_from_anchor": False, "markov_head_type": "gated", "confidence_head_with_markov": False}
    speculators_dflash("speculators-dspark", {"markov_rank": 6}, {}, method="dspark")
    speculators_dflash("speculators-dspark-mask", {"markov_rank": 6} | own_place, {}, method="dspark")


def experts() -> None:
    """MTP with a mixture of experts, with the routing of GLM-4.5 and of Qwen3-Next."""
    glm4_moe_mtp()
    routed = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 12}
    routed |= {"shared_expert_intermediate_size": 20, "decoder_sparse_step": 1}
    speculators_mtp("qwen3_next", routed)
    speculators_mtp("qwen3_5_moe_text", routed)


def latents() -> None:
    """MTP with MLA: DeepSeek-V3's layer, one without the optional parts, and GLM-4.7's."""
    sizes = {"qk_nope_head_dim": 6, "qk_rope_head_dim": 4, "v_head_dim": 5, "kv_lora_rank": 12, "q_lora_rank": 10}
    sizes |= {"num_attention_heads": 3, "num_key_value_heads": 3, "head_dim": 4}
    sharp = {"type": "yarn", "factor": 40, "mscale": 0.7, "mscale_all_dim": 1.0, "beta_fast": 32, "beta_slow": 1}
    sharp = {"rope_theta": 10000.0, "rope_scaling": sharp | {"original_max_position_embeddings": 4096}}
    routed = {
        "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 12, "n_shared_experts": 1,
        "n_group": 4, "topk_group": 2, "norm_topk_prob": True, "routed_scaling_factor": 2.5,
        "scoring_func": "sigmoid", "topk_method": "noaux_tc",
    }  # fmt: skip
    plain_one = sizes | {"q_lora_rank": None, "rope_interleave": False, "attention_bias": True}
    torch.manual_seed(61)
    ours = {"first_k_dense_replace": 0, "max_position_embeddings": 163840}
    transformers_mtp("deepseek_v3", "deepseek_v3", False, sizes | sharp | routed | ours, has_own=True)
    transformers_mtp("deepseek_v3-plain", "deepseek_v3", False, plain_one | {"first_k_dense_replace": 9})
    transformers_mtp("glm4_moe_lite", "glm4_moe_lite", False, sizes | routed | {"mlp_layer_types": ["sparse"] * 3})


def eagle_first(name, module, oracle, has_bias, **extra) -> None:
    """EAGLE-1, with the target's LM head."""
    config = {**LLAMA, "architectures": ["LlamaForCausalLM"], **extra}
    head, given = shaken(module.Model(as_of_old(config), bias=has_bias)), Given(layers=1)
    with torch.no_grad():
        head.embed_tokens.weight.copy_(given.embedding)
        head.reset()
        hidden, past = head(given.features[None], given.tokens[None], use_cache=True)
        again, _ = head(hidden[:, -1:], torch.zeros(1, 1, dtype=torch.long), past_key_values=past, use_cache=True)
    state = without(head.state_dict(), "embed_tokens")
    first, second = (rows[0] @ given.output.T for rows in (hidden, again))
    given.keep(name, config, state, first, second, oracle, "pytorch_model.bin")


def eagle_from_source(source: Path) -> None:
    """EAGLE-1 with its own RoPE base, which the old package ignores, and EAGLE-3, which no package contains."""
    sys.path.insert(0, str(source / "eagle" / "model"))
    commit = (source / "COMMIT").read_text().strip()
    oracle = f"SafeAILab/EAGLE {commit}: eagle/model/cnets1.py Model"
    eagle_first("eagle1", importlib.import_module("cnets1"), oracle, has_bias=False, bias=False, rope_theta=500000.0)
    module = importlib.import_module("cnets")
    wide = {"target_hidden_size": 20}
    for name, extra in (("eagle3", {}), ("eagle3-theta", {"rope_theta": 500000.0}), ("eagle3-narrow", wide)):
        config = {**LLAMA, "architectures": ["LlamaForCausalLM"], "draft_vocab_size": DRAFTED, **extra}
        head = shaken(module.Model(as_of_old(config)))
        given = Given(layers=3, read=extra.get("target_hidden_size", WIDTH))
        with torch.no_grad():
            head.embed_tokens.weight.copy_(given.embedding)
            given.choose_tokens(head)
            head.reset()
            hidden, past = head(given.features[None], given.tokens[None], use_cache=True)
            again, _ = head(hidden[:, -1:], torch.zeros(1, 1, dtype=torch.long), past_key_values=past, use_cache=True)
            first, second = (head.lm_head(head.norm(rows))[0] for rows in (hidden, again))
        state = head.state_dict() if "target_hidden_size" in extra else without(head.state_dict(), "embed_tokens")
        given.keep(name, config, state, first, second, f"SafeAILab/EAGLE {commit}: eagle/model/cnets.py Model")


def deepspec(source: Path) -> None:
    """DeepSpec: five hidden states, q and k norms, the complete vocabulary; from source: there is no package."""
    from transformers import DynamicCache, Qwen3Config

    module = deepspec_module(source, "deepspec.modeling.eagle3.qwen3.modeling")
    settings = {"target_layer_ids": [1, 2, 3, 4, 5], "ttt_length": 7, "step_loss_decay": 1.0, "num_target_layers": 8}
    config = Qwen3Config(**plain({**LLAMA, "rope_theta": 30000.0}), **settings)
    config._attn_implementation = "eager"
    head, given, past = shaken(module.Qwen3Eagle3Model(config)), Given(layers=5), DynamicCache()
    mask = torch.full((LENGTH, LENGTH), float("-inf")).triu(1)[None, None]
    with torch.no_grad():
        hidden = head(given.features[None], given.tokens[None], past_key_values=past, attention_mask=mask)
        nothing, place = torch.zeros(1, 1, dtype=torch.long), torch.tensor([[LENGTH]])
        again = head(hidden[:, -1:], nothing, place, past_key_values=past)
        first, second = (head.compute_logits(rows)[0] for rows in (hidden, again))
    content = as_json(config) | {"architectures": ["Qwen3Eagle3Model"]}
    commit = (source / "COMMIT").read_text().strip()
    oracle = f"deepseek-ai/DeepSpec {commit}: modeling/eagle3/qwen3/modeling.py Qwen3Eagle3Model"
    given.keep("deepspec", content, head.state_dict(), first, second, oracle)


def deepspec_dspark(source: Path) -> None:
    """DSpark of DeepSpec, with each form of its Markov head: a block after the first tokens, then one after all."""
    from transformers import DynamicCache, Qwen3Config

    torch.manual_seed(72)
    module = deepspec_module(source, "deepspec.modeling.dspark.qwen3.modeling")
    own = {"target_layer_ids": [1, 4], "mask_token_id": MASK, "num_anchors": 2, "block_size": BLOCK, "markov_rank": 6}
    forms = {
        "dspark": {"markov_head_type": "vanilla", "confidence_head_with_markov": True},
        "dspark-gated": {"markov_head_type": "gated", "confidence_head_with_markov": False},
        "dspark-rnn": {"markov_head_type": "rnn", "confidence_head_with_markov": True},
    }
    for name, form in forms.items():
        settings = own | form | {"enable_confidence_head": True, "num_target_layers": 8, "tie_word_embeddings": False}
        config = Qwen3Config(**plain({**LLAMA, "num_hidden_layers": 2, "rope_theta": 30000.0}), **settings)
        config._attn_implementation = "eager"
        head, given, past = shaken(module.Qwen3DSparkModel(config)), Given(layers=2), DynamicCache()
        outputs, confidence = [], []
        for read, start in ((0, FIRST_BLOCK), (FIRST_BLOCK, LENGTH)):
            block = torch.tensor([[int(given.tokens[start - 1]), *[MASK] * (BLOCK - 1)]])
            with torch.no_grad():
                states = head._forward_backbone(
                    position_ids=torch.arange(read, start + BLOCK)[None], noise_embedding=head.embed_tokens(block),
                    target_hidden_states=given.features[None, read:start], past_key_values=past, use_cache=True,
                )  # fmt: skip
                chosen, logits = head.sample_draft_tokens(
                    head.compute_logits(states), first_prev_token_ids=block[:, 0], hidden_states=states
                )
                before = torch.cat((block[:, :1], chosen[:, :-1]), dim=1)
                confidence.append(head.predict_confidence_step(states, prev_token_ids=before)[0])
            past.crop(-BLOCK)
            outputs.append(logits[0])
        content = as_json(config) | {"architectures": ["Qwen3DSparkModel"]}
        commit = (source / "COMMIT").read_text().strip()
        oracle = f"deepseek-ai/DeepSpec {commit}: modeling/dspark/qwen3/modeling.py Qwen3DSparkModel"
        given.keep(name, content, head.state_dict(), *outputs, oracle, confidence=torch.stack(confidence))


def deepspec_module(source: Path, name: str):
    """A module of DeepSpec, without the imports of its packages' `__init__`."""
    sys.path.insert(0, str(source))
    parts = name.split(".")[:-2]
    for package in (*(".".join(parts[: count + 1]) for count in range(len(parts))), "deepspec.utils"):
        module = types.ModuleType(package)
        module.__path__ = [str(source / package.replace(".", "/"))]
        sys.modules[package] = module
    return importlib.import_module(name)


def angelslim() -> None:
    """AngelSlim: its trainer has the RoPE base 10000 and ignores the config."""
    for package in ("", ".compressor", ".compressor.speculative", ".compressor.speculative.train"):
        bare_package("angelslim" + package)
    bare_package("angelslim.compressor.speculative.train.data")
    stub = types.ModuleType("angelslim.compressor.speculative.train.data.data_utils")
    stub.process_token_dict_to_mappings = None
    sys.modules[stub.__name__] = stub
    bare_package("angelslim.compressor.speculative.train.models")
    bare_package("angelslim.compressor.speculative.train.models.draft")
    module = importlib.import_module("angelslim.compressor.speculative.train.models.draft.llama_eagle3")
    config = {
        **LLAMA,
        "architectures": ["Eagle3LlamaForCausalLM"],
        "draft_vocab_size": DRAFTED,
        "rope_theta": 1000000.0,
    }
    head = shaken(module.Eagle3LlamaForCausalLM(module.LlamaConfig(**plain(config))))
    given = Given(layers=3)
    given.choose_tokens(head)
    config["head_dim"] = 5  # as published once: the tensors know better
    first, second = in_runs(
        given, head.combine_hidden_states, lambda *rest: head.encode_layers(*rest, use_cache=True), head.compute_logits
    )
    state = without(head.state_dict(), "embed_tokens")
    oracle = f"angelslim {version('angelslim')}: compressor.speculative.train.models.draft.llama_eagle3"
    given.keep("angelslim", config, state, first, second, oracle)


def specforge() -> None:
    """SpecForge, plain and with a norm for every hidden state and no final norm."""
    module = importlib.import_module("specforge.modeling.draft.llama3_eagle")
    named = {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 3, 4], "use_aux_hidden_state": True}}
    llama3 = {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32, "rope_theta": 500000.0,
    }  # fmt: skip
    variants = {
        "specforge": named | {"rope_theta": 1000000.0},
        "specforge-llama3": named | {"rope_scaling": llama3, "rope_theta": 500000.0},
        "specforge-norms": named | {"fc_norm": True, "norm_output": False},
    }
    for name, extra in variants.items():
        config = {**LLAMA, "architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": DRAFTED, **extra}
        head = shaken(module.LlamaForCausalLMEagle3(module.LlamaConfig(**plain(config))))
        given = Given(layers=3)
        given.choose_tokens(head)

        def layer(embedded, hidden, cache, mask, positions, head=head):
            return head.backbone(embedded, hidden, cache, mask, positions), cache

        first, second = in_runs(given, head.project_hidden_states, layer, head.compute_logits)
        state = without(head.state_dict(), "embed_tokens")
        oracle = f"specforge {version('specforge')}: modeling.draft.llama3_eagle.LlamaForCausalLMEagle3"
        given.keep(name, config, state, first, second, oracle)


def speculators_first(name, **flags) -> None:
    """speculators' EAGLE-1 and HASS, with the norms that some trainers add."""
    from transformers import AutoConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    module = importlib.import_module("speculators.models.eagle")
    nested = AutoConfig.for_model("llama", **plain({**LLAMA, "rope_theta": 500000.0}))
    nested._attn_implementation = "eager"
    configs = importlib.import_module("speculators.config")
    proposal = importlib.import_module("speculators.proposals.greedy").GreedyTokenProposalConfig(speculative_tokens=3)
    speculators = configs.SpeculatorsConfig(
        algorithm="eagle", proposal_methods=[proposal], default_proposal_method="greedy",
        verifier=configs.VerifierConfig(name_or_path=None, architectures=["LlamaForCausalLM"]),
    )  # fmt: skip
    config = module.EagleSpeculatorConfig(transformer_layer_config=nested, speculators_config=speculators, **flags)
    head, given = shaken(module.EagleSpeculator(config, verifier_attachment_mode="detached")), Given(layers=1)
    head.embed_tokens = nn.Embedding.from_pretrained(given.embedding)
    head.rotary_emb = LlamaRotaryEmbedding(nested)
    head.lm_head = nn.Linear(WIDTH, VOCABULARY, bias=False)
    mask = torch.full((LENGTH, LENGTH), float("-inf")).triu(1)[None, None]
    with torch.no_grad():
        head.lm_head.weight.copy_(given.output)
        # today's layer gives a tensor where the layer of its time gave a tuple
        head.transformer.forward = tupled(head.transformer.forward)
        first = head(given.tokens[None], given.features[None], attention_mask=mask).logits[0]
    state = {key: value for key, value in head.state_dict().items() if not key.startswith(("embed_tokens", "lm_head"))}
    content = json.loads(json.dumps(config.to_dict(), default=str))
    content["transformer_layer_config"] = json.loads(nested.to_json_string())
    oracle = f"speculators {version('speculators')}: models.eagle.EagleSpeculator"
    given.keep(name, content, state, first, first[:0], oracle)


def tupled(forward):
    return lambda *inputs, **options: (forward(*inputs, **options),)


def speculators_third(name, flags, family="llama", layers=1, whole=False, nested=None) -> None:
    """speculators' EAGLE-3 in its variants; its forward runs twice, and a hook on the LM head saves the logits."""
    core = importlib.import_module("speculators.models.eagle3.core")
    configs = importlib.import_module("speculators.config")
    from transformers import AutoConfig

    is_near = bool(nested)  # its second run looks back from the row and not from the place, so it is left out
    sizes = plain({**LLAMA, "num_hidden_layers": layers, "rope_theta": 30000.0, **(nested or {})})
    nested = AutoConfig.for_model(family, **sizes)
    nested._attn_implementation = "eager"
    verifier = configs.VerifierConfig(name_or_path=None, architectures=["LlamaForCausalLM"])
    proposal = importlib.import_module("speculators.proposals.greedy").GreedyTokenProposalConfig(speculative_tokens=3)
    config = core.Eagle3SpeculatorConfig(
        transformer_layer_config=nested,
        draft_vocab_size=VOCABULARY if whole else DRAFTED,
        speculators_config=configs.SpeculatorsConfig(
            algorithm="eagle3", proposal_methods=[proposal], default_proposal_method="greedy", verifier=verifier
        ),
        **flags,
    )
    head = core.Eagle3DraftModel(config)
    shaken(head)
    given = Given(layers=3)
    with torch.no_grad():
        head.embed_tokens.weight.copy_(torch.randn_like(head.embed_tokens.weight))
        if not whole:
            given.choose_tokens(head)
        outputs = []
        head.lm_head.register_forward_hook(lambda _module, _inputs, output: outputs.append(output[0]))
        head.eval()
        head(given.features[None], given.tokens[None], torch.zeros(1, LENGTH, dtype=torch.long), ttt_steps=2)
    state = {key: value for key, value in head.state_dict().items() if not key.startswith("verifier_")}
    oracle = f"speculators {version('speculators')}: models.eagle3.core.Eagle3DraftModel"
    first, second = outputs
    given.keep(f"speculators-{name}", as_json(config), state, first, second[:0] if is_near else second, oracle)


BLOCK, MASK, FIRST_BLOCK = 4, 39, 3  # block size, mask token, position of the first block; the second is at LENGTH


def specforge_dflash(name, nested) -> None:
    """z-lab's network in SpecForge: a block after the first tokens, and a block after all tokens."""
    from transformers import DynamicCache, Qwen3Config

    module = importlib.import_module("specforge.modeling.draft.dflash")
    masks = importlib.import_module("specforge.algorithms.common.dflash_family_model")
    config = Qwen3Config(**plain({**LLAMA, "num_hidden_layers": 2, "rope_theta": 30000.0, **nested}))
    config._attn_implementation = "eager"
    config.dflash_config = {"mask_token_id": MASK, "target_layer_ids": [1, 4]}
    config.block_size, config.num_target_layers = BLOCK, 8
    head, given, past, outputs = shaken(module.DFlashDraftModel(config)), Given(layers=2), DynamicCache(), []
    for read, start in ((0, FIRST_BLOCK), (FIRST_BLOCK, LENGTH)):
        kept, places = torch.ones(1, 1, dtype=torch.bool), torch.tensor([[start]])
        seen = {
            kind: masks.create_dflash_sdpa_mask(places, kept, start, BLOCK, "cpu", sliding_window=window)
            for kind, window in (("full_attention", None), ("sliding_attention", config.sliding_window))
        }
        block = torch.tensor([int(given.tokens[start - 1]), *[MASK] * (BLOCK - 1)])
        with torch.no_grad():
            rows = head(
                torch.arange(read, start + BLOCK)[None], seen, given.embedding[block][None],
                given.features[None, read:start], past, use_cache=True,
            )  # fmt: skip
        past.crop(-BLOCK)
        outputs.append(rows[0, 1:] @ given.output.T)
    content = as_json(config) | {"architectures": ["DFlashDraftModel"]}
    oracle = f"specforge {version('specforge')}: modeling.draft.dflash.DFlashDraftModel"
    given.keep(name, content, head.state_dict(), *outputs, oracle)


def speculators_dflash(name, flags, nested, whole=False, method="dflash") -> None:
    """speculators' DFlash, DSpark and DFlash-2, whose code runs both blocks at once, as in training."""
    core = importlib.import_module("speculators.models.dflash.core")
    configs = importlib.import_module("speculators.config")
    own = importlib.import_module(f"speculators.models.{method}.core")
    kind = {"dflash": "DFlash", "dspark": "DSpark", "dflash2": "DFlash2"}
    from transformers import AutoConfig

    sizes = plain({**LLAMA, "num_hidden_layers": 2, "rope_theta": 30000.0, "model_type": "qwen3", **nested})
    layer = AutoConfig.for_model(sizes.pop("model_type"), **sizes)
    layer._attn_implementation = "eager"
    verifier = configs.VerifierConfig(name_or_path=None, architectures=["X"])
    proposal = importlib.import_module("speculators.proposals.greedy").GreedyTokenProposalConfig(speculative_tokens=3)
    config = getattr(own, f"{kind[method]}SpeculatorConfig")(
        transformer_layer_config=layer, draft_vocab_size=VOCABULARY if whole else DRAFTED, block_size=BLOCK,
        aux_hidden_state_layer_ids=[2, 5], mask_token_id=MASK,
        speculators_config=configs.SpeculatorsConfig(
            algorithm=method, proposal_methods=[proposal], default_proposal_method="greedy", verifier=verifier
        ),
        **flags,
    )  # fmt: skip
    core.resolve_verifier_norm_class = lambda _config: core.Qwen3RMSNorm  # it would look the verifier up
    head, given = shaken(getattr(own, f"{kind[method]}DraftModel")(config)), Given(layers=2)
    length = LENGTH + BLOCK + 1
    asked = torch.zeros(1, length, dtype=torch.bool)
    asked[0, [FIRST_BLOCK, LENGTH]] = True
    text, features = torch.zeros(1, length, dtype=torch.long), torch.zeros(1, length, 2 * WIDTH)
    text[0, 1 : LENGTH + 1], features[0, :LENGTH] = given.tokens, given.features
    one = torch.zeros(1, length, dtype=torch.long)
    with torch.no_grad():
        head.embed_tokens.weight.copy_(given.embedding)
        head.lm_head.weight.copy_(given.output[: head.draft_vocab_size])
        if not whole:
            given.choose_tokens(head)
        states, logits, *_rest = head._backbone_forward(
            features, text, asked, torch.zeros(1, length, WIDTH), one, max_anchors=2
        )
        start = 0 if config.sample_from_anchor else 1
        states, logits = (rows[0].view(2, BLOCK, -1)[:, start:] for rows in (states, logits))
        extra = {}
        if method == "dspark":
            logits, extra["confidence"] = corrected(head, states, logits, given.tokens[[FIRST_BLOCK - 1, LENGTH - 1]])
        if method == "dflash2":
            logits = selected(head.candidate_selector, states, logits, given.tokens[[FIRST_BLOCK - 1, LENGTH - 1]])
    first, second = logits
    left = ("verifier_", "embed_tokens", "lm_head") if whole else ("verifier_", "embed_tokens")
    state = {key: value for key, value in head.state_dict().items() if not key.startswith(left)}
    oracle = f"speculators {version('speculators')}: models.{method}.core.{kind[method]}DraftModel"
    given.keep(name, as_json(config), state, first, second, oracle, **extra)


def corrected(head, states, logits, anchors):
    """The logits with the bias of the Markov head, slot by slot, and the confidences."""
    before = anchors[:, None].repeat(1, states.shape[1])
    for slot in range(states.shape[1]):
        biased = logits + head.markov_head.block_bias(prev_token_ids=before, hidden_states=states)
        if slot + 1 < states.shape[1]:
            columns = biased[:, slot].argmax(-1)
            before[:, slot + 1] = columns + head.d2t[columns]
    embedded = [head.markov_head.prev_embeddings(before)] if head.config.confidence_head_with_markov else []
    return biased, head.confidence_head(torch.cat([states, *embedded], dim=-1))


def selected(selector, states, logits, before):
    """The scores of the candidates of each slot after the best candidate of the slot before; no other token has one."""
    scored = torch.full_like(logits, -torch.inf)
    for slot in range(logits.shape[1]):
        candidates, scores = selector.select(logits[:, slot], states[:, slot], before)
        scored[:, slot].scatter_(1, candidates, scores)
        before = scored[:, slot].argmax(-1)
    return scored


DEPTHS = 3  # of P-EAGLE: a pair, and mask tokens behind it


def speculators_peagle(name, flags, family="llama", nested=None) -> None:
    """speculators' P-EAGLE, with the sampling of training replaced by all depths behind each position.

    `first` has the logits of the pairs, `second` those of the mask tokens, depth by depth.
    """
    core = importlib.import_module("speculators.models.peagle.core")
    configs = importlib.import_module("speculators.config")
    from transformers import AutoConfig

    sizes = plain({**LLAMA, "num_hidden_layers": 2, "rope_theta": 30000.0, **(nested or {})})
    layer = AutoConfig.for_model(family, **sizes)
    layer._attn_implementation = "eager"
    verifier = configs.VerifierConfig(name_or_path=None, architectures=["LlamaForCausalLM"])
    proposal = importlib.import_module("speculators.proposals.greedy").GreedyTokenProposalConfig(
        speculative_tokens=DEPTHS
    )
    config = core.PEagleSpeculatorConfig(
        transformer_layer_config=layer, draft_vocab_size=DRAFTED, mask_token_id=MASK,
        speculators_config=configs.SpeculatorsConfig(
            algorithm="peagle", proposal_methods=[proposal], default_proposal_method="greedy", verifier=verifier
        ),
        **flags,
    )  # fmt: skip
    head, given, length, outputs = shaken(core.PEagleDraftModel(config)), Given(layers=3), LENGTH + DEPTHS, []
    anchors = [torch.arange(length), *(torch.arange(LENGTH) for _ in range(1, DEPTHS))]
    depths = torch.cat([torch.full((len(each),), depth) for depth, each in enumerate(anchors)])
    core.generate_cod_sample_indices = lambda **_options: (torch.cat(anchors), depths)
    core.compute_metrics = lambda **_options: (None, None)
    text, features = torch.zeros(1, length, dtype=torch.long), torch.zeros(1, length, 3 * WIDTH)
    text[0, :LENGTH], features[0, :LENGTH] = given.tokens, given.features
    with torch.no_grad():
        head.embed_tokens.weight.copy_(torch.randn_like(head.embed_tokens.weight))
        given.choose_tokens(head)
        head.lm_head.register_forward_hook(lambda _module, _inputs, output: outputs.append(output[0]))
        one = torch.zeros(1, length, dtype=torch.long)
        head(features, text, one, verifier_last_hidden_states=torch.zeros(1, length, WIDTH))
    state = {key: value for key, value in head.state_dict().items() if not key.startswith("verifier_")}
    oracle = f"speculators {version('speculators')}: models.peagle.core.PEagleDraftModel"
    given.keep(name, as_json(config), state, outputs[0][:LENGTH], outputs[0][length:], oracle)


def speculators_mtp(family, routed=None) -> None:
    """speculators' MTP, with the layers of transformers; Qwen's names for the checkpoints that it converts."""
    core = importlib.import_module("speculators.models.mtp.core")
    settings = importlib.import_module("speculators.models.mtp.config")
    configs = importlib.import_module("speculators.config")
    from transformers import AutoConfig

    sizes = plain({**LLAMA, "num_hidden_layers": 4, "rope_theta": 10000.0})
    if family != "qwen3":
        sizes |= {"layer_types": ["linear_attention"] * 3 + ["full_attention"], "head_dim": 16, "num_experts": 0}
        sizes |= routed or {}
        sizes["rope_parameters"] = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}
        if family.startswith("qwen3_5"):
            sizes["rope_parameters"] |= {"mrope_section": [2, 1, 1], "mrope_interleaved": True}
    nested = AutoConfig.for_model(family, **sizes)
    nested._attn_implementation = "eager"
    verifier = configs.VerifierConfig(name_or_path=None, architectures=["X"])
    proposal = importlib.import_module("speculators.proposals.greedy").GreedyTokenProposalConfig(speculative_tokens=2)
    config = settings.MTPSpeculatorConfig(
        transformer_layer_config=nested,
        speculators_config=configs.SpeculatorsConfig(
            algorithm="mtp", proposal_methods=[proposal], default_proposal_method="greedy", verifier=verifier
        ),
    )
    head = shaken(core.MTPDraftModel(config))
    given = Given(layers=1)
    with torch.no_grad():
        head.embed_tokens.weight.copy_(given.embedding)
        head.lm_head.weight.copy_(given.output)
        text = torch.cat((torch.zeros(1, dtype=torch.long), given.tokens, torch.zeros(2, dtype=torch.long)))[None]
        features = torch.cat((given.features, torch.zeros(3, WIDTH)))[None]
        (first, second), _loss, _metrics = head.eval()(text, features)
    state = {key: value for key, value in head.state_dict().items() if key.startswith("mtp_layers.")}
    layers = f"over transformers {version('transformers')}"
    oracle = f"speculators {version('speculators')}: models.mtp.core.MTPDraftModel {layers}"
    if family == "qwen3":
        content = as_json(config)
    else:
        names = {"input_proj": "fc", "final_layernorm": "norm", "hidden_layernorm": "pre_fc_norm_hidden"}
        names |= {"token_layernorm": "pre_fc_norm_embedding"}
        state = {qwen_name(key.removeprefix("mtp_layers.0."), names): value for key, value in state.items()}
        content = json.loads(nested.to_json_string()) | {"mtp_num_hidden_layers": 1, "model_type": family}
    name = f"mtp-{family}-experts" if routed and family == "qwen3_next" else f"mtp-{family}"
    state = state if family == "qwen3_5_moe_text" else unstacked(state)
    given.keep(name, content, state, first[0], second[0], oracle, alone=True)


def glm4_moe_mtp() -> None:
    """GLM-4.5: sigmoid scores, a correction for the selection, one of two groups, and a shared expert."""
    routed = {
        "num_local_experts": 8, "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 12,
        "n_shared_experts": 2, "n_group": 4, "topk_group": 2, "first_k_dense_replace": 0, "norm_topk_prob": True,
        "routed_scaling_factor": 1.7, "use_qk_norm": True, "partial_rotary_factor": 0.5,
    }  # fmt: skip
    transformers_mtp("glm4_moe", "glm4_moe", first=False, routed=routed)


def transformers_mtp(name, family, first, routed=None, has_own=False) -> None:
    """transformers' layer for multi-token prediction, with the names of DeepSeek-V3 and of MiMo.

    `has_own`: with embeddings and an LM head beside the layer. DeepSeek's are copies of the target's; these differ, so
    that a wrong choice changes the logits.
    """
    from transformers import AutoConfig, AutoModelForCausalLM, DynamicCache
    from transformers.modeling_layers import MtpLayer

    config = {**LLAMA, "num_hidden_layers": 3, "num_nextn_predict_layers": 1, "model_type": family, **(routed or {})}
    copied = json.loads(json.dumps(without(config, "model_type")))  # a copy, because a config class changes its input
    built = AutoConfig.for_model(family, **plain(copied | {"layer_types": None}))
    built._attn_implementation, built.mtp_hidden_states_first = "eager", first
    model = AutoModelForCausalLM.from_config(built).get_decoder()
    block = type(model.layers[0]), type(model.norm)
    head, given = shaken(MtpLayer(built, *block, layer_idx=0)).eval(), Given(layers=1)
    embedding, output = (torch.randn(VOCABULARY, WIDTH) for _ in "eo") if has_own else (given.embedding, given.output)
    for key, value in head.named_buffers():
        if key.endswith("e_score_correction_bias"):
            value.copy_(0.3 * torch.randn_like(value))
    past = DynamicCache()

    def run(hidden, tokens, start):
        positions = torch.arange(start, start + len(tokens))[None]
        mask = torch.full((len(tokens), start + len(tokens)), float("-inf")).triu(1 + start)[None, None]
        angles = model.rotary_emb(hidden[None], positions)
        return head(embedding[tokens][None], hidden[None], angles, mask, positions, past)[0]

    with torch.no_grad():
        hidden = run(given.features, given.tokens, 0)
        again = run(hidden[-1:], torch.zeros(1, dtype=torch.long), LENGTH)
    numbered = "model.layers.3.", {"mtp_block.": "", "post_norm": "shared_head.norm"}
    spellings = {
        "mimo": (
            "model.mtp_layers.0.",
            {"mtp_block.": "", "post_norm": "final_layernorm", "enorm": "token_layernorm", "hnorm": "hidden_layernorm"}
            | {"eh_proj": "input_proj"},
        ),
    }
    prefix, names = spellings.get(name, numbered)
    state = unstacked({prefix + respelled(key, names): value for key, value in head.state_dict().items()})
    if has_own:
        state |= {f"{prefix}embed_tokens.weight": embedding, f"{prefix}shared_head.head.weight": output}
    oracle = f"transformers {version('transformers')}: modeling_layers.MtpLayer over {block[0].__name__}"
    given.keep(f"mtp-{name}", config, state, hidden @ output.T, again @ output.T, oracle)


def medusa() -> None:
    """Medusa's first version, with its own LM heads, and the version with the target's."""
    block = importlib.import_module("medusa.model.medusa_model").ResBlock
    for name, layers, own in (("medusa1", 1, True), ("medusa1-deep", 2, True), ("medusa2", 1, False)):
        given = Given(layers=1)
        outputs = [nn.Linear(WIDTH, VOCABULARY, bias=False)] if own else []
        columns = [nn.Sequential(*([block(WIDTH)] * layers), *outputs) for _ in range(3)]
        head = shaken(nn.ModuleList(columns))
        with torch.no_grad():
            ahead = torch.stack([column(given.features) for column in columns])
        logits = ahead if own else ahead @ given.output.T
        config = {"medusa_num_heads": 2, "medusa_num_layers": layers, "version": "1" if own else "2"}
        config |= {"hidden_size": WIDTH, "vocab_size": VOCABULARY}
        oracle = f"medusa-llm {version('medusa-llm')}: medusa.model.medusa_model.ResBlock"
        given.keep(name, config, head.state_dict(), logits, logits[:0], oracle, "medusa_lm_head.pt")


def hydra(source: Path) -> None:
    """Hydra with and without the tokens before, and Hydra++ with a layer below the heads; from source: no package.

    Head k reads k + 1 tokens: behind the last of the given tokens, all are token 0.
    """
    torch.manual_seed(83)
    sys.path.insert(0, str(source))
    for package in ("hydra", "hydra.model"):
        module = types.ModuleType(package)
        module.__path__ = [str(source / package.replace(".", "/"))]
        sys.modules[package] = module
    plain_one = importlib.import_module("hydra.model.hydra_heads.mlp_head").HydraMLP
    plus = importlib.import_module("hydra.model.hydra_heads.prefix_mlp_head").HydraPrefixMLP
    from transformers import LlamaConfig

    commit, heads, config = (source / "COMMIT").read_text().strip(), 3, LlamaConfig(**plain(LLAMA))
    config.rope_parameters = config.rope_scaling = None  # code older than transformers 5 would read a type in it
    for name, network, layers, reads in (
        ("hydra", plain_one, 1, True), ("hydra-ungrounded", plain_one, 2, False), ("hydra++", plus, 2, True)
    ):  # fmt: skip
        given = Given(layers=1)
        head = shaken(network(layers, heads, reads, nn.Embedding.from_pretrained(given.embedding), config))
        text = torch.cat((given.tokens[:1], given.tokens, torch.zeros(heads, dtype=torch.long)))[None]
        states = torch.cat((given.features, torch.zeros(heads + 1, WIDTH)))[None]
        with torch.no_grad():
            logits = torch.stack(head(states, text)[0])[:, 0, :LENGTH]
        settings = {"hydra_num_heads": heads, "hydra_num_layers": layers, "grounded_heads": reads}
        settings["hydra_head_arch"] = "prefix-mlp" if network is plus else "mlp"
        state = {key: value for key, value in head.state_dict().items() if "embed" not in key or "embeding" in key}
        oracle = f"zankner/Hydra {commit}: hydra.model.hydra_heads {network.__name__}"
        given.keep(name, settings, state, logits, logits[:, :0], oracle, "hydra_lm_head.pt", tables=True)


class Given:
    """The inputs of a head: hidden states, tokens, and the embeddings and LM head of a target."""

    def __init__(self, layers: int, read: int = WIDTH) -> None:
        self.features = torch.randn(LENGTH, layers * read)
        self.tokens = torch.randint(1, VOCABULARY, (LENGTH,))
        self.embedding, self.output = torch.randn(VOCABULARY, WIDTH), torch.randn(VOCABULARY, WIDTH)

    def choose_tokens(self, head) -> None:
        """A draft vocabulary whose offsets are not valid ids."""
        kept = torch.randperm(VOCABULARY)[:DRAFTED].sort().values
        inside = torch.zeros(VOCABULARY, dtype=torch.bool)
        inside[kept] = True
        head.d2t.copy_(kept - torch.arange(DRAFTED))
        head.t2d.copy_(inside)

    def keep(
        self, name, config, state, first, second, oracle, file="model.safetensors", alone=False, tables=False, **extra
    ) -> None:
        """Write the file. `tables`: with those of rotary embeddings, which most publishers leave out."""
        tensors = {
            f"head.{key}": value
            for key, value in state.items()
            if tables or ("inv_freq" not in key and "rotary" not in key)
        }
        tensors |= {"features": self.features, "tokens": self.tokens, "first": first, "second": second} | extra
        tensors |= {"target.embedding": self.embedding, "target.output": self.output}
        metadata = {"oracle": oracle, "config": json.dumps(config), "file": file, "second_is_alone": str(alone)}
        content = {key: value.detach().clone().contiguous() for key, value in tensors.items()}
        folder = OF_PLUGIN if name.startswith(KINDS_OF_PLUGIN) or name == "mtp-qwen3" else HERE
        save_file(content, folder / f"{name}.safetensors", metadata=metadata)
        print(name, oracle, tuple(first.shape), tuple(second.shape))


@torch.no_grad()
def in_runs(given, fuse, layer, logits):
    """Two runs as in training: each position sees the true pairs up to its own, then its own output."""
    mask = torch.full((LENGTH, LENGTH), torch.finfo(torch.float32).min).triu(1)[None, None]
    positions, cache = torch.arange(LENGTH)[None], [[], []]
    hidden, tokens, outputs = fuse(given.features[None]), given.tokens, []
    for _ in range(2):
        hidden, cache = layer(given.embedding[tokens][None], hidden, cache, mask, positions)
        outputs.append(logits(hidden)[0])
        tokens = torch.cat((tokens[1:], tokens.new_zeros(1)))
    return outputs


@torch.no_grad()
def shaken(head):
    """Random weights of similar magnitude: norms near 1, no bias at 0."""
    for name, weight in head.named_parameters():
        weight.copy_(1 + 0.3 * torch.randn_like(weight) if "norm" in name else 0.35 * torch.randn_like(weight))
    return head.eval()


def as_of_old(config):
    """The config keys of code older than transformers 5; current config classes would rewrite them."""
    return types.SimpleNamespace(**plain(config), rope_scaling=None, pretraining_tp=1)


def plain(config):
    return without(config, "architectures")


def without(content, start):
    return {key: value for key, value in content.items() if not key.startswith(start)}


def as_json(config):
    return json.loads(config.to_json_string(use_diff=False))


def unstacked(state):
    """The published tensors of single experts, where transformers has stacks of experts."""
    apart = {}
    for key, value in state.items():
        at, _, part = key.partition(".experts.")
        if part not in ("gate_up_proj", "down_proj"):
            apart[key] = value
            continue
        for expert, matrix in enumerate(value):
            halves = zip(("gate_proj", "up_proj"), matrix.chunk(2), strict=True)
            named = halves if part == "gate_up_proj" else [(part, matrix)]
            apart |= {f"{at}.experts.{expert}.{name}.weight": rows for name, rows in named}
    return apart


def qwen_name(key, names):
    part = key.split(".", maxsplit=1)[0]
    return f"mtp.{names[part]}.weight" if part in names else f"mtp.layers.0.{key}"


def respelled(key, names):
    for old, new in names.items():
        if key.startswith(old):
            return new + key.removeprefix(old)
    return key


def bare_package(name) -> None:
    """A package without the imports of its `__init__`."""
    module = types.ModuleType(name)
    module.__path__ = [str(distribution("angelslim").locate_file(name.replace(".", "/")))]
    sys.modules[name] = module


if __name__ == "__main__":
    main(sys.argv[1:])
