"""A plugin for specchat: drafters that few users need, most of them with trained heads that the catalog does not have.

    eagle1.py                                           EAGLE-1: format and drafter
    assistant.py                                        assistants of Gemma 4: format, head and drafter
    medusa.py                                           Medusa: format, head and drafter
    candidate_tree.py                                   the tree of assistants, Medusa and Hydra
    hydra_format.py hydra_head.py hydra_drafter.py      Hydra and Hydra++
    peagle_format.py peagle_head.py peagle_drafter.py   P-EAGLE
    dflash_format.py dflash_head.py dflash.py           DFlash
    block_formats.py                                    DSpark and DFlash-2, which are drafted from as DFlash, with
      block_correction.py                               the heads of DSpark
      candidate_selector.py block_convolution.py        those of DFlash-2
    block_spec.py block_chain.py                        what these and P-EAGLE share: masks, and a chain
    deepseek_format.py deepseek_layers.py mla.py        MTP with the layers of DeepSeek-V3, for the drafter `mtp`
    mimo_format.py                                      MTP with the names of MiMo, for the drafter `mtp`
    token_recycling.py lookahead.py                     drafters without a head: Token Recycling, lookahead decoding
    early_exit.py retokenize.py                         the first layers of the target; a draft model with other tokens

Every process of specchat imports this file, so it only declares the extensions.
"""

from __future__ import annotations

from specchat.plugins.hooks import Extension, hookimpl


@hookimpl
def register_drafters() -> list[Extension]:
    return [
        Extension(
            "recycling",
            "proposes the model's top candidates of earlier steps (token recycling)",
            "specchat_heads.token_recycling:build",
        ),
        Extension(
            "lookahead",
            "computes several positions ahead in the same pass (lookahead decoding)",
            "specchat_heads.lookahead:build",
        ),
        Extension("exit", "the first layers of the model itself (early exit)", "specchat_heads.early_exit:build"),
        Extension("retokenized", "a small draft model with other tokens", "specchat_heads.retokenize:build"),
        Extension(
            "assistant",
            "a small model that reads the keys and values of a Gemma 4 target",
            "specchat_heads.assistant:build",
        ),
        Extension("eagle", "a head that continues the last hidden states", "specchat_heads.eagle1:build"),
        Extension("medusa", "one extra head for each position ahead", "specchat_heads.medusa:build"),
        Extension(
            "hydra",
            "as medusa, and each head reads the draft tokens before its own",
            "specchat_heads.hydra_drafter:build",
        ),
        Extension("dflash", "a head that proposes a block at once", "specchat_heads.dflash:build_dflash"),
        Extension("peagle", "as eagle3, with all draft tokens in one pass", "specchat_heads.peagle_drafter:build"),
        Extension(
            "dflash2",
            "as dflash, and each token is chosen among candidates by the one before it",
            "specchat_heads.dflash:build_dflash2",
        ),
        Extension(
            "dspark",
            "as dflash, and each token is corrected by the one before it",
            "specchat_heads.dflash:build_dspark",
        ),
    ]


@hookimpl
def register_heads() -> list[Extension]:
    return [
        Extension("assistant", "assistants of Gemma 4", "specchat_heads.assistant:detect_assistant"),
        Extension("medusa", "Medusa-1 and Medusa-2", "specchat_heads.medusa:detect_medusa"),
        Extension("hydra", "Hydra and Hydra++ of zankner/Hydra", "specchat_heads.hydra_format:detect_hydra"),
        Extension("peagle", "P-EAGLE of speculators, SpecForge and vLLM", "specchat_heads.peagle_format:detect_peagle"),
        Extension("dflash2", "DFlash-2 of z-lab and speculators", "specchat_heads.block_formats:detect_dflash2"),
        Extension("dspark", "DSpark of DeepSpec and speculators", "specchat_heads.block_formats:detect_dspark"),
        Extension(
            "dflash",
            "DFlash of z-lab, SpecForge, DeepSpec and speculators",
            "specchat_heads.dflash_format:detect_dflash",
        ),
        Extension(
            "deepseek", "MTP with the layers of DeepSeek-V3 and GLM", "specchat_heads.deepseek_format:detect_deepseek"
        ),
        Extension("mimo", "MTP of MiMo and speculators", "specchat_heads.mimo_format:detect_mimo"),
        Extension("eagle", "EAGLE-1 and -2 of SafeAILab and speculators", "specchat_heads.eagle1:detect_eagle1"),
    ]
