"""What all trained heads share: from a checkpoint of some publisher to a network that a drafter calls.

spec.py             a head as a value: dimensions, wiring, canonical tensor names; does it fit a target?
detect.py           which head is in a folder? asks the formats, those of plugins first
head_checkpoint.py  tensors and config of a checkpoint, and what all formats read from them
draft_head.py       the interface of a loaded head
load_head.py        the network of a head for its target
backbone.py         embeddings, decoder layers and LM head
selftest.py         how well does a head predict its target, and in which variant?
"""
