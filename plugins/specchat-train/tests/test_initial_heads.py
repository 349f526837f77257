"""Initial weights: EAGLE-3 copies from the text, EAGLE-1 is a linear fit."""

import torch
import torch.nn.functional as F

from recipes.induction import initialize_copy_circuit, initialize_eagle3
from specchat_train.eagle_initialization import fit_fusion
from specchat_train.export_weights import eagle3_hidden_state_layers
from specchat_train.trainable_heads import Eagle1, Eagle3
from specchat_train.trainable_llama import ModelShape, TrainableLlama


def test_a_new_eagle3_head_copies_from_the_text():
    shape = ModelShape(vocab_size=2048)
    target, eagle = TrainableLlama(shape), Eagle3(shape, torch.arange(2048))
    initialize_copy_circuit(target, seed=0)
    once = torch.randint(0, 2048, (1, 120), generator=torch.Generator().manual_seed(1))
    tokens = torch.cat((once, once), dim=1)

    with torch.no_grad():
        eagle.lm_head.weight.copy_(target.model.embed_tokens.weight)
        initialize_eagle3(eagle.fc.weight, eagle.midlayer.self_attn, shape, seed=0)
        hidden_states = target(tokens)
        features = torch.cat([hidden_states[layer] for layer in eagle3_hidden_state_layers(shape.layers)], dim=-1)
        embedded = F.embedding(tokens.roll(-1, dims=1), target.model.embed_tokens.weight)
        drafted = eagle.lm_head(next(iter(eagle.unroll(features, embedded, 1))).prediction).argmax(-1)

    accuracy = (drafted[0, 124:-2] == tokens[0, 126:]).float().mean()
    assert accuracy > 0.5


def test_a_new_eagle1_head_is_the_least_squares_fit_of_the_next_state():
    shape = ModelShape(layers=2, hidden_size=64, num_heads=2, head_dim=32, intermediate_size=64, vocab_size=128)
    eagle, rule = Eagle1(shape), torch.randn(64, 128)
    embedded, hidden = torch.randn(1, 400, 64), torch.randn(1, 400, 64)
    following = torch.cat((embedded, hidden), dim=-1) @ rule.T

    fit_fusion(eagle.fc.weight, eagle.layer.self_attn, torch.cat((embedded, hidden), -1)[0], following[0])

    with torch.no_grad():
        predicted = next(eagle.unroll(hidden, embedded, 1)).feature
    assert torch.allclose(following, predicted, atol=0.1)
