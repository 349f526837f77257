"""Draft heads: checkpoints of several published formats become networks that the drafters call.

spec.py         a head as a value: dimensions, wiring, canonical tensor names; does it fit a target?
formats/        the tensor names and config keys of each publisher -> `HeadSpec`
detect.py       which head is in a folder?
backbone.py     embeddings, decoder layers and LM head
mla.py          multi-head latent attention, which Llama does not have
pair_head.py    the base of heads over pairs of a hidden state and a token
networks.py     EAGLE, MTP and Medusa; `load_head`
arena_passes.py passes of a head whose place and lengths are numbers on the device
peagle_head.py  P-EAGLE: all draft tokens in one pass, behind the last pair
dflash_head.py  DFlash, DFlash-2 and DSpark: a block of tokens in one pass
block_correction.py  what DSpark adds to a block: a bias from the token before, and a confidence
candidate_selector.py  what DFlash-2 adds to a block: a choice among candidates by the token before
block_convolution.py  and to its layers: convolutions over the slots
hydra_head.py   Hydra: heads that also read the draft tokens before theirs
assistant_head.py  assistants of Gemma 4: layers over the keys and values of the target
selftest.py     how well does a head predict its target, and in which variant?
"""
