"""EAGLE-1, -2 and -3 and MTP: heads that continue the target's hidden states. The idea is large, so it has a folder.

pair_drafter.py     the base of drafters whose head reads pairs of a hidden state and a token
eagle_drafter.py    the drafter
dynamic_tree.py     a dynamic tree that grows without waiting for the device
graph.py            the tree on a GPU, as one CUDA graph
head.py             the base of heads over pairs
arena_passes.py     passes of a head whose place and lengths are numbers on the device
mla.py              multi-head latent attention, which some heads have
eagle1_format.py eagle3_format.py mtp_format.py     published formats, with
  mla_format.py moe_format.py     the sizes of MLA and of a mixture of experts
"""
