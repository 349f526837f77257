"""The decoding loop: tokens in, steps out. It uses torch, and knows no text, no files and no screen.

tree.py            the draft tree: draft tokens, their parents and the drafter of each
drafter.py         the interface of a drafter: context in, draft tree out, outcome back
decode.py          the loop of one sequence: draft, verify, accept, commit
joint_passes.py    passes that the texts of a model share
grammar.py         masks for constrained output, one for each node of a tree
model.py           the interface of a target or draft model: prefill and forward
cache.py           the KV cache, and the pool that allocates it
cache_sizes.py     how many rows a text takes there; without torch
prefix_cache.py    the texts in memory, found by their tokens, of all conversations
checkpoints.py     the lengths to which recurrent states can go back, and which of them are dropped
int8_rows.py       rows of a KV cache in 8 bits
kv_arena.py        rows of all caches of a model at one address, for CUDA graphs
device.py          copies to the device that do not wait
penalties.py       what tokens of the text lose at each node, for sampling and drafting
sampling.py        logits to tokens: temperature, Gumbel noise
truncation.py      which tokens top-k, top-p and min-p keep
accept.py          the argument for losslessness, and the walk
probabilities.py   the probabilities of committed tokens, for a reader who asks for them
hidden_states.py   the target's hidden states, stored for drafters with a head
"""
