"""Why speculative decoding does not change the text: the whole argument, and the function that carries it out.

After every node of a draft tree the target samples one token:

    argmax(logits / T + gumbel(seed, position, token))

This is an exact sample of softmax(logits / T) (the Gumbel-max trick). The noise depends on the seed, the position and
the token only. Acceptance then walks from the root along the draft tokens that equal the sampled tokens. The result is
the text that plain decoding samples for the same seed, token by token, with any drafter. A drafter decides only how
many tokens a step yields. A drafter may use the same noise (shared randomness, arXiv 2408.07978), so that its ranking
agrees with the target's sample more often.

The argument needs three properties:

- The noise is a pure integer hash. There is no random generator whose state could differ between two runs.
- Penalties, grammars, truncation and padding use the prefix of *each node*, as plain decoding does.
- No probability of a drafter is used: a draft token is a point mass, accepted exactly when the target samples it.
"""

from specchat.engine.tree import ROOT, DraftTree


def accept(tree: DraftTree, sampled_tokens: list[int]) -> list[int]:
    """Walk from the root along the draft tokens that equal the target's samples; return these nodes, root first."""
    path = [ROOT]
    while (node := tree.child(path[-1], sampled_tokens[path[-1]])) is not None:
        path.append(node)
    return path
