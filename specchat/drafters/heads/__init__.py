"""What all trained heads share: from a checkpoint of some publisher to a network that a drafter calls.

spec.py             a head as a value: dimensions, wiring, canonical tensor names; does it fit a target?
detect.py           which head is in a folder?
head_checkpoint.py  tensors and config of a checkpoint, and what all formats read from them
unsupported.py      formats that are recognized only
*_format.py         the tensor names and config keys of each publisher -> `HeadSpec`
backbone.py         embeddings, decoder layers and LM head
networks.py         EAGLE, MTP and Medusa; `load_head`
*_head.py           P-EAGLE, DFlash, Hydra and assistants
selftest.py         how well does a head predict its target, and in which variant?
"""
