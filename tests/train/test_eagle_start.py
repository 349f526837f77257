"""What the heads begin with: EAGLE-3's layer copies what it has seen, the first EAGLE guesses linearly."""

import torch
import torch.nn.functional as F

from recipes.induction import start_eagle, start_weights
from specchat.train.eagle_initialization import start_first_eagle
from specchat.train.export_weights import eagle_taps
from specchat.train.trainable_heads import Eagle, FirstEagle
from specchat.train.trainable_llama import Network, Shape


def test_a_fresh_eagle_head_copies_what_it_has_seen():
    shape = Shape(vocabulary=2048)
    target, eagle = Network(shape), Eagle(shape, torch.arange(2048))
    start_weights(target, seed=0)
    once = torch.randint(0, 2048, (1, 120), generator=torch.Generator().manual_seed(1))
    tokens = torch.cat((once, once), dim=1)

    with torch.no_grad():
        eagle.lm_head.weight.copy_(target.model.embed_tokens.weight)
        start_eagle(eagle.fc.weight, eagle.midlayer.self_attn, shape, seed=0)
        stream = target(tokens)
        taps = torch.cat([stream[tap] for tap in eagle_taps(shape.layers)], dim=-1)
        embedded = F.embedding(tokens.roll(-1, dims=1), target.model.embed_tokens.weight)
        guesses = eagle.lm_head(next(iter(eagle.runs(taps, embedded, 1))).prediction).argmax(-1)

    right = (guesses[0, 124:-2] == tokens[0, 126:]).float().mean()
    assert right > 0.5


def test_the_first_eagle_begins_with_the_nearest_linear_guess_at_the_next_state():
    shape = Shape(layers=2, width=64, heads=2, head_width=32, inner=64, vocabulary=128)
    eagle, rule = FirstEagle(shape), torch.randn(64, 128)
    embedded, hidden = torch.randn(1, 400, 64), torch.randn(1, 400, 64)
    following = torch.cat((embedded, hidden), dim=-1) @ rule.T

    start_first_eagle(eagle.fc.weight, eagle.layer.self_attn, torch.cat((embedded, hidden), -1)[0], following[0])

    with torch.no_grad():
        guessed = next(eagle.runs(hidden, embedded, 1)).feature
    assert torch.allclose(following, guessed, atol=0.1)
