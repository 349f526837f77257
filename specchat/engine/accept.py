"""Why speculation cannot change the text. This file is the whole argument.

After every node the target *picks* a token, from its own logits and from dice that depend on the seed, the position
and the token alone: `argmax(logits / T + gumbel(seed, position, token))`, which is an exact sample of the softmax
(the Gumbel-max trick). Then we walk from the root along the guesses that equal those picks. What comes out is what
plain decoding would have picked, token by token, whoever drafted; a drafter decides only how many tokens a step
yields. Draft and target may share the dice (arXiv 2408.07978), so a drafter that ranks with them bets on the very
throw that the target will see.

Three things keep the argument whole. The dice are a pure integer hash, without a generator that could run out of
step. Penalties, grammars, truncation and padding act on every node with *that node's* prefix, as in plain decoding.
And no probability of a drafter is divided by: a guess is a point mass, accepted exactly when it is picked.

The *classic rule* (Leviathan et al., arXiv 2211.17192; Chen et al., arXiv 2302.01318) is there for who chooses it. A
drafter draws its guess x from chances q by dice of its own and reports both; the target, whose chances are p, then
picks x with min(1, p(x) / q(x)), and else from what p has more than q, norm(max(p - q, 0)). Over all x this is

    min(p, q) + (1 - sum of min(p, q)) * norm(max(p - q, 0)) = min(p, q) + max(p - q, 0) = p,

so after every node the pick is a sample of p as before, and the walk is the same walk. The text is *equal in
distribution* to plain decoding, no longer equal for a seed. Without a report a guess is a point mass, q = 1, for which
the rule says: x with p(x), else from p without x. That is a pick from p, so those nodes are picked as ever. At T = 0
both rules take the likeliest token.

That holds as long as no draw is dropped for what came out, and no dice are thrown again that somebody has looked at.
So a draw is judged where it was made, even if its guess was cut off the tree; a drafter's dice are not the target's;
and each step has dice of its own. A drafter must not look at dice, the target's or its own, to decide how much to draw.
"""

from __future__ import annotations

import torch
from torch import Tensor

from specchat.engine.tree import ROOT, DraftTree


def rejection_sampling_probabilities(
    target_probabilities: Tensor, draft_probabilities: Tensor, is_draft_token: Tensor
) -> Tensor:
    """The classic rule: the chances of the pick, when the target's are p, and a guess was drawn from a drafter's q.

    p, q [C]; guess [C] bool, True for its column at most. The guess is picked with min(1, p/q), and the rest is
    shared out in proportion to max(p - q, 0); should rounding leave nothing there, in proportion to p.
    """
    accepted = torch.where(is_draft_token, target_probabilities / draft_probabilities, 0.0).sum().clamp(max=1.0)
    more = (target_probabilities - draft_probabilities).clamp(min=0.0)
    total = more.sum()
    more = torch.where(total > 0, more / total, target_probabilities)
    return torch.where(is_draft_token, accepted, 0.0) + (1 - accepted) * more


def accept(tree: DraftTree, sampled_tokens: list[int]) -> list[int]:
    """Follow the guesses that the target agrees with: the nodes to keep, root first."""
    path = [ROOT]
    while (node := tree.child(path[-1], sampled_tokens[path[-1]])) is not None:
        path.append(node)
    return path
