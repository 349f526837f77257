"""Why speculative decoding does not change the text: the whole argument, and the two functions that carry it out.

**The default rule.** After every node of a draft tree the target samples one token:

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

**Rejection sampling** (Leviathan et al., arXiv 2211.17192; Chen et al., arXiv 2302.01318) is an option. The drafter
samples its token x from probabilities q with noise of its own and reports both. The target, with probabilities p,
samples x with probability min(1, p(x) / q(x)), and otherwise from the residual norm(max(p - q, 0)). Over all x this is

    min(p, q) + (1 - sum of min(p, q)) * norm(max(p - q, 0)) = min(p, q) + max(p - q, 0) = p

so the token after every node is still a sample of p, and the walk is the same. The text is *equal in distribution* to
plain decoding, and no longer equal for a seed. A draft token without a reported q is a point mass (q = 1): the rule
then samples x with p(x), and otherwise from p without x. That is a sample of p, so such nodes follow the default rule.
At T = 0 both rules take the most probable token.

Rejection sampling is correct only if no draft sample is discarded because of its value, and if no noise is used twice.
Therefore a draft sample is tested at the node where it was made, even if its token was pruned from the tree; the
drafter's noise differs from the target's; and each step has its own noise. A drafter must not look at any noise when it
decides how many tokens it drafts.
"""

import torch
from torch import Tensor

from specchat.engine.tree import ROOT, DraftTree


def rejection_sampling_probabilities(
    target_probabilities: Tensor, draft_probabilities: Tensor, is_draft_token: Tensor
) -> Tensor:
    """The probabilities of the next token after a draft token was sampled from q, with target probabilities p.

    p and q are [C]; `is_draft_token` is bool [C], True for at most one column. The draft token gets min(1, p / q). The
    rest is distributed in proportion to max(p - q, 0), or to p if rounding leaves nothing there.
    """
    accepted = torch.where(is_draft_token, target_probabilities / draft_probabilities, 0.0).sum().clamp(max=1.0)
    residual = (target_probabilities - draft_probabilities).clamp(min=0.0)
    total = residual.sum()
    residual = torch.where(total > 0, residual / total, target_probabilities)
    return torch.where(is_draft_token, accepted, 0.0) + (1 - accepted) * residual


def accept(tree: DraftTree, sampled_tokens: list[int]) -> list[int]:
    """Walk from the root along the draft tokens that equal the target's samples; return these nodes, root first."""
    path = [ROOT]
    while (node := tree.child(path[-1], sampled_tokens[path[-1]])) is not None:
        path.append(node)
    return path
