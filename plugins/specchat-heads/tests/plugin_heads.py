"""Tiny random heads of this plugin for the targets of the tests of specchat, and published ones with outputs."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from specchat.drafters.eagle.head import EagleHead
from specchat.drafters.heads.load_head import load_head
from specchat.drafters.heads.spec import HeadSpec
from specchat.forward.batch import RowBatch
from specchat_heads.assistant import Assistant, AssistantHead
from specchat_heads.block_chain import DraftedBlocks, SlotOutput
from specchat_heads.block_correction import DSparkHead
from specchat_heads.candidate_selector import DFlash2Head
from specchat_heads.deepseek_layers import DeepSeekHead
from specchat_heads.dflash import DFlashDrafter
from specchat_heads.dflash_head import DFlashHead
from specchat_heads.hydra_drafter import Hydra
from specchat_heads.hydra_head import HydraHead
from specchat_heads.medusa import Medusa, MedusaHead
from specchat_heads.peagle_drafter import PEagleDrafter
from specchat_heads.peagle_head import PEagleHead
from tests import tiny_heads
from tests.drafters import published as published_heads
from tests.drafters.published import CPU, Published
from tests.tiny import SIZES, VOCABULARY
from tests.tiny_heads import WIDTH, layer_shapes, random_tensors

GOLDEN = Path(__file__).parent / "golden"
NAMES = sorted(path.stem for path in GOLDEN.glob("*.safetensors"))
FIRST_BLOCK = 3  # position of the first of two blocks
KINDS = ["eagle", "mtp latent", "medusa", "peagle", "hydra", "hydra++", "dflash", "dflash2", "dspark"]


def published(name: str) -> Published:
    return published_heads.published(name, GOLDEN)


def _assistant() -> dict[str, Tensor]:
    """For a target with Gemma 4's layers: its full attention has heads of another size."""
    shapes: dict[str, tuple[int, ...]] = {
        "pre_projection": (20, 2 * WIDTH), "post_projection": (WIDTH, 20), "model.embed_tokens": (VOCABULARY, 20),
        "model.norm": (20,),
    }  # fmt: skip
    for layer, size in enumerate((12, 12, 16)):
        at = f"model.layers.{layer}"
        norms = ("input", "post_attention", "pre_feedforward", "post_feedforward")
        shapes |= {f"{at}.{name}_layernorm": (20,) for name in norms} | {f"{at}.self_attn.q_norm": (size,)}
        shapes |= {f"{at}.self_attn.q_proj": (4 * size, 20), f"{at}.self_attn.o_proj": (20, 4 * size)}
        shapes |= {f"{at}.mlp.{part}_proj": (24, 20) for part in ("gate", "up")} | {f"{at}.mlp.down_proj": (20, 24)}
    return random_tensors(shapes)


def _eagle() -> dict[str, Tensor]:
    return random_tensors({"fc": (WIDTH, 2 * WIDTH), **layer_shapes("layers.0")})


def _medusa() -> dict[str, Tensor]:
    weights = random_tensors({f"{head}.0.linear": (WIDTH, WIDTH) for head in range(3)})
    return weights | {f"{head}.0.linear.bias": torch.zeros(WIDTH) for head in range(3)}


def _peagle() -> dict[str, Tensor]:
    """The first layer reads pairs, the second not; its embeddings are its own."""
    eagle3 = tiny_heads.TENSORS["eagle3"]()
    first = {name.replace("midlayer.", "layers.0."): weight for name, weight in eagle3.items()}
    more = {"embed_tokens": (VOCABULARY, WIDTH), "layers.1.input_layernorm": (WIDTH,), **layer_shapes("layers.1")}
    mask = random_tensors({"mask": (3 * WIDTH, 1)})["mask.weight"].view(1, 1, -1)
    return first | random_tensors(more) | {"mask_hidden": mask}


def _hydra() -> dict[str, Tensor]:
    shapes: dict[str, tuple[int, ...]] = {}
    for head in range(3):
        shapes |= {f"hydra_mlp.{head}.0.{part}": (WIDTH, (2 + head) * WIDTH) for part in ("linear", "res_connection")}
        shapes[f"hydra_lm_head.{head}"] = (VOCABULARY, WIDTH)
    return random_tensors(shapes)


def _hydra_plus() -> dict[str, Tensor]:
    """With a decoder layer below the heads; its head size is in the table of its rotary embedding."""
    at = "prefix_embeding_layer"
    names = {name: name.replace(".0.linear", ".1.linear").replace(".0.res", ".1.res") for name in _hydra()}
    norms = {f"{at}.norm": (WIDTH,), f"{at}.layers.0.input_layernorm": (WIDTH,)}
    table = {f"{at}.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(int(SIZES["head_dim"]) // 2)}
    heads = {names[name]: weight for name, weight in _hydra().items()}
    return heads | random_tensors(norms | layer_shapes(f"{at}.layers.0")) | table


def _dflash() -> dict[str, Tensor]:
    layers = ("layers.0", "layers.1")
    names = ("hidden_norm", "norm", *(f"{layer}.input_layernorm" for layer in layers))
    shapes = dict.fromkeys(names, (WIDTH,)) | {"fc": (WIDTH, 2 * WIDTH)}
    return random_tensors(shapes | layer_shapes("layers.0") | layer_shapes("layers.1"))


def _dflash2() -> dict[str, Tensor]:
    """With convolutions of two taps for groups of four channels, and a candidate selector."""
    rank, taps, groups, parts = 6, 2, WIDTH // 4, ("attention", "mlp")
    names = [f"layers.{layer}.{part}_conv" for layer in range(2) for part in parts]
    sizes = {f"{name}.kernel_projection": (2 * taps * groups, WIDTH) for name in names}
    books = {f"candidate_selector.{name}_codebook": (VOCABULARY, rank) for name in ("predecessor", "successor")}
    bare = {f"{name}.base_kernel": (2 * taps, WIDTH) for name in names} | books
    tensors = {name.removesuffix(".weight"): weight for name, weight in random_tensors(bare).items()}
    tensors |= {name: weight.view(2, taps, WIDTH) for name, weight in tensors.items() if name.endswith("base_kernel")}
    return _dflash() | random_tensors(sizes | {"candidate_selector.hidden_projection": (rank, WIDTH)}) | tensors


def _mtp_latent() -> dict[str, Tensor]:
    """Multi-head latent attention: three heads, latents of 20 numbers, and a key of 8 with RoPE."""
    at, weights = "model.layers.3.self_attn", tiny_heads.TENSORS["mtp"]()
    sizes = {
        "q_a_proj": (16, WIDTH), "q_a_layernorm": (16,), "q_b_proj": (3 * (12 + 8), 16),
        "kv_a_proj_with_mqa": (20 + 8, WIDTH), "kv_a_layernorm": (20,), "kv_b_proj": (3 * (12 + 10), 20),
        "o_proj": (WIDTH, 3 * 10),
    }  # fmt: skip
    kept = {name: weight for name, weight in weights.items() if ".self_attn." not in name}
    return kept | random_tensors({f"{at}.{name}": shape for name, shape in sizes.items()})


def _dspark() -> dict[str, Tensor]:
    """A recurrent Markov head, and a confidence head that is mostly sure."""
    rank = 6
    sizes = {
        "markov_head.markov_w1": (VOCABULARY, rank), "markov_head.markov_w2": (VOCABULARY, rank),
        "markov_head.joint_proj": (3 * rank, 2 * rank + WIDTH), "confidence_head.proj": (1, WIDTH + rank),
    }  # fmt: skip
    biases = {"markov_head.joint_proj.bias": torch.zeros(3 * rank), "confidence_head.proj.bias": torch.full((1,), 1.5)}
    return _dflash() | random_tensors(sizes) | biases


tiny_heads.TENSORS.update(
    {
        "assistant": _assistant,
        "eagle": _eagle,
        "medusa": _medusa,
        "peagle": _peagle,
        "hydra": _hydra,
        "hydra++": _hydra_plus,
        "dflash": _dflash,
        "dflash2": _dflash2,
        "dspark": _dspark,
        "mtp latent": _mtp_latent,
    }
)
tiny_heads.CONFIGS.update(
    {
        "eagle": {"architectures": ["LlamaForCausalLM"], "bias": False, "max_position_embeddings": 64},
        "assistant": {
            "model_type": "gemma4_assistant", "backbone_hidden_size": 48, "text_config": {
                "model_type": "gemma4_text", "hidden_size": 20, "intermediate_size": 24, "num_hidden_layers": 3,
                "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 12, "global_head_dim": 16,
                "layer_types": ["sliding_attention", "sliding_attention", "full_attention"], "sliding_window": 8,
                "vocab_size": VOCABULARY, "hidden_size_per_layer_input": 0, "vocab_size_per_layer_input": 0,
                "num_kv_shared_layers": 3,
            },
        },
        "medusa": {"medusa_num_heads": 3, "medusa_num_layers": 1},
        "peagle": {
            "architectures": ["PEagleDraftModel"], "num_hidden_layers": 2, "draft_vocab_size": 60, "mask_token_id": 95,
            "max_position_embeddings": 64, "eagle_config": {"eagle_aux_hidden_state_layer_ids": [0, 2, 3]},
            "speculators_config": {"proposal_methods": [{"speculative_tokens": 5}]},
        },
        "hydra": {"hydra_num_heads": 3, "hydra_num_layers": 1, "grounded_heads": True},
        "hydra++": {"hydra_num_heads": 3, "hydra_head_arch": "prefix-mlp", "max_position_embeddings": 64},
        "dflash": {
            "architectures": ["DFlashDraftModel"], "num_hidden_layers": 2, "max_position_embeddings": 64,
            "block_size": 6, "num_target_layers": 3,
            "dflash_config": {"mask_token_id": 95, "target_layer_ids": [0, 1]},
        },
        "dflash2": {
            "architectures": ["DFlash2DraftModel"], "num_hidden_layers": 2, "max_position_embeddings": 64,
            "num_target_layers": 3, "is_causal": False, "layer_types": ["sliding_attention", "full_attention"],
            "sliding_window": 8,
            "dflash_config": {"mask_token_id": 95, "target_layer_ids": [0, 1], "block_size": 6, "selector_top_k": 9},
        },
        "mtp latent": {"num_hidden_layers": 3, "num_nextn_predict_layers": 1, "max_position_embeddings": 64}
        | {"model_type": "deepseek_v3", "mtp_hidden_states": "post_norm"},
        "dspark": {
            "architectures": ["Qwen3DSparkModel"], "num_hidden_layers": 2, "max_position_embeddings": 64,
            "block_size": 6, "num_target_layers": 3, "mask_token_id": 95, "target_layer_ids": [0, 1],
        },
    }
)  # fmt: skip
tiny_heads.DRAFTERS[AssistantHead] = lambda head, _target, _growth: Assistant(head)
tiny_heads.DRAFTERS[MedusaHead] = lambda head, target, _growth: Medusa(head, target)
tiny_heads.DRAFTERS[HydraHead] = lambda head, target, _growth: Hydra(head, target)
for _head in (DFlashHead, DFlash2Head, DSparkHead):
    tiny_heads.DRAFTERS[_head] = lambda head, target, _growth: DFlashDrafter(head, target)
tiny_heads.DRAFTERS[DeepSeekHead] = tiny_heads.DRAFTERS[EagleHead]
tiny_heads.DRAFTERS[PEagleHead] = lambda head, target, _growth: PEagleDrafter(head, target)


def logits_of(spec: HeadSpec, golden: Published) -> list[Tensor]:
    """The outputs of our network for the inputs of the publisher's code: the first run and the second."""
    head = load_head(spec, golden.target, torch.float32, CPU)
    if isinstance(head, MedusaHead):
        return [torch.stack(head.logits(golden.given["features"])), golden.given["second"]]
    if isinstance(head, HydraHead):
        return [after_true_tokens(head, golden), golden.given["second"]]
    if isinstance(head, DFlashHead):
        return two_blocks(head, golden)
    if isinstance(head, EagleHead):
        return [output.logits for output in published_heads.two_runs(head, golden)]
    assert isinstance(head, PEagleHead)
    return pairs_and_masks(head, golden)


def after_true_tokens(head: HydraHead, golden: Published) -> Tensor:
    """Every head after every state, with the given tokens as path, and token 0 behind them. [heads, L, V]"""
    features, cache, logits = golden.given["features"], head.pool.open(), list[Tensor]()
    with head.pool.acquire_slot(cache, 64):
        states = torch.cat([head.prefill(part, cache) for part in features.split(4)])
    tokens = torch.cat((golden.given["tokens"], torch.zeros(head.tokens_ahead, dtype=torch.long)))
    for ahead in range(1, head.tokens_ahead + 1):
        logits.append(head.logits(states, tokens.unfold(0, ahead, 1)[: len(states)]))
    return torch.stack(logits)


def two_blocks(head: DFlashHead, golden: Published) -> list[Tensor]:
    """A block after the first tokens, then a block after all tokens."""
    tokens, features, cache = golden.given["tokens"], golden.given["features"], head.pool.open()
    outputs = list[Tensor]()
    with head.pool.acquire_slot(cache, 64):
        for first, start in ((0, FIRST_BLOCK), (FIRST_BLOCK, len(tokens))):
            head.prefill(features[first:start], first, cache)
            block = head.draft_block([int(tokens[start - 1])], [start], cache)
            outputs.append(torch.cat([slot.logits for slot in greedy_slots(head, block, tokens[start - 1 : start])]))
    return outputs


def greedy_slots(head: DFlashHead, block: DraftedBlocks, token: Tensor) -> list[SlotOutput]:
    """All slots of one block, each after the best token of the one before."""
    slots = list[SlotOutput]()
    for _ in range(block.logits.shape[1]):
        slots.append(block.next_slot(token))
        token = slots[-1].logits.argmax(-1)
        token = token if head.draft_to_target_ids is None else head.draft_to_target_ids[token]
    return slots


def pairs_and_masks(head: PEagleHead, golden: Published) -> list[Tensor]:
    """All pairs of the text; and behind each position one pass of all masks, in the order of their depth."""
    tokens, hidden, cache = golden.given["tokens"], head.fuse(golden.given["features"]), head.pool.open()
    count, masks = len(tokens), head.tokens_ahead - 1
    states, embeddings = head.mask_pairs(masks)
    after, first = list[Tensor](), torch.ones(count, count, dtype=torch.bool).tril()
    with head.pool.acquire_slot(cache, 64):
        batch = RowBatch(tokens.tolist(), torch.arange(count), first, 0)
        pairs = head.forward(hidden, head.embed(tokens), batch, cache).logits
        cache.commit(list(range(count)))
        for last in reversed(range(count)):  # the masks overwrite the pairs behind
            cache.rollback(last + 1)
            mask = torch.ones(masks, last + 1 + masks, dtype=torch.bool).tril(last + 1)
            batch = RowBatch([head.mask_token_id] * masks, torch.arange(masks) + last + 1, mask, last + 1)
            after.append(head.forward(states, embeddings, batch, cache).logits)
    return [pairs, torch.stack(after[::-1], dim=1).flatten(0, 1)]
