"""EAGLE-3 and MTP: heads that continue the target's hidden states. The idea is large, so it has a folder.

pair_drafter.py     the base of drafters whose head reads pairs of a hidden state and a token
eagle_drafter.py    the drafter, which chooses a kernel for its trees
dynamic_tree.py     the tree of EAGLE-2, grown level by level: the one algorithm
pair_passes.py      the passes of a head for one tree, over a KV cache or an arena
graph.py            a kernel: the tree on a GPU, as one CUDA graph
native_tree.py      a kernel: the tree on a CPU, in one native call
head.py             heads over pairs
eagle3_format.py mtp_format.py      published formats
"""
