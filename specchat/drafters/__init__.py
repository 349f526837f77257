"""Drafters: one published idea in each file. Each builds a `DraftTree` from the engine's interface.

registry.py          the one table of built-in drafters, and how each is built from the loaded models
prompt_lookup.py     copies what followed the longest match earlier in the text
suffix_decoding.py   the same over the longest context, weighted by frequency, in other conversations, too
suffix_contexts.py   where a text has the context that it ends with
native_suffix.py     both in one call
draft_model.py       a small model with the target's tokens
head_drafter.py      the base of EAGLE and MTP: hidden states of the target, and a KV cache of the head
eagle/               EAGLE and MTP, with their head, formats and tree
heads/               what all trained heads share
plugin_guard.py      checks the drafters of plugins
"""
