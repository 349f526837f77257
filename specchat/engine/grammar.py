"""Constrained decoding: the mask of allowed tokens after each node of a draft tree.

Decoding under a grammar samples from masked logits. The mask of a node depends on the path of that node alone, so the
argument of `accept.py` holds: the result is the text of plain decoding under the same grammar. Drafters know nothing
about grammars. Draft tokens that the grammar forbids are pruned before the pass, and tokens that the grammar forces
are added in front of the draft.

This file knows no grammar language and no text: it uses an automaton over token ids (`text/llguidance_grammar.py`).
"""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from specchat.engine.tree import ROOT, DraftTree
from specchat.errors import ModelError

GRAMMAR_SOURCE = "grammar"  # the source of forced tokens


class Grammar(Protocol):
    def allowed_mask(self) -> Tensor:
        """The tokens that may come next. bool [V]"""
        ...

    def advance(self, token: int) -> bool:
        """Consume a token; return False and consume nothing if the token is not allowed."""
        ...

    def rollback(self, count: int) -> None: ...

    def forced_tokens(self) -> list[int]:
        """Tokens that most likely come next, because only one text is possible. They are verified like draft tokens."""
        ...

    def is_free(self, draft_tokens: Sequence[int]) -> bool:
        """Whether any token may come next and behind any path of these draft tokens: then no mask is needed."""
        ...


def constrain_tree(tree: DraftTree, grammar: Grammar, max_draft_tokens: int) -> tuple[DraftTree, Tensor]:
    """The tree without forbidden tokens and with the forced ones, at most `max_draft_tokens`; and masks. bool [N, V]

    Under {"colour": "red" or "blue"} and a root behind `{"col`, a draft token `umn` is pruned, and `our`, `": "` is
    added even if no drafter proposed it.
    """
    tree = _with_forced_tokens(tree, grammar.forced_tokens()[:max_draft_tokens], max_draft_tokens)
    children: list[list[int]] = [[] for _node in tree.tokens]
    for node, parent in enumerate(tree.parents[1:], start=1):
        children[parent].append(node)
    masks: dict[int, Tensor] = {}

    def visit(node: int) -> None:
        masks[node] = grammar.allowed_mask()
        for child in children[node]:
            if grammar.advance(tree.tokens[child]):
                visit(child)
                grammar.rollback(1)

    visit(ROOT)
    allowed = sorted(masks)
    return tree.prune(allowed[1:]), torch.stack([masks[node] for node in allowed])


def advance_all(grammar: Grammar, tokens: list[int]) -> None:
    for token in tokens:
        if not grammar.advance(token):
            raise ModelError(f"the grammar of the answer cannot be followed past token {token}; simplify the format")


def _with_forced_tokens(tree: DraftTree, forced_tokens: list[int], max_draft_tokens: int) -> DraftTree:
    """The forced tokens as a chain from the root, then as much of the tree as fits."""
    if not forced_tokens:
        return tree
    merged, merged_nodes = DraftTree(tree.tokens[ROOT]), {ROOT: ROOT}
    merged.add_chain(forced_tokens, source=GRAMMAR_SOURCE)
    for node in range(1, len(tree)):
        parent = merged_nodes.get(tree.parents[node])
        if parent is None:
            continue
        child = merged.child(parent, tree.tokens[node])
        if child is None and len(merged) <= max_draft_tokens:
            child = merged.add(tree.tokens[node], parent, tree.sources[node])
        if child is not None:
            merged_nodes[node] = child
    return merged
