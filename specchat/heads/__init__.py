"""Draft heads: checkpoints of several published formats become networks that the drafters call.

spec.py         a head as a value: dimensions, wiring, canonical tensor names; does it fit a target?
formats/        the tensor names and config keys of each publisher -> `HeadSpec`
detect.py       which head is in a folder?
backbone.py     embeddings, decoder layers and LM head
mla.py          multi-head latent attention, which Llama does not have
networks.py     EAGLE, MTP and Medusa; `load_head`
arena_passes.py passes of a head whose place and lengths are numbers on the device
dflash_head.py  DFlash and DSpark: a block of tokens in one pass
block_correction.py  what DSpark adds to a block: a bias from the token before, and a confidence
hydra_head.py   Hydra: heads that also read the draft tokens before theirs
selftest.py     how well does a head predict its target, and in which variant?
"""
