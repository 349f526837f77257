"""The trainable Llama equals that of transformers, and its initial weights can copy."""

import pytest
import torch

from recipes.embedded_models import export_network
from recipes.induction import initialize_copy_circuit
from specchat_train.distillation_losses import draft_vocabulary
from specchat_train.export_weights import eagle3_hidden_state_layers
from specchat_train.trainable_heads import Eagle1, Eagle3, Medusa, MtpBlock, shift_right
from specchat_train.trainable_llama import ModelShape, TrainableLlama


@pytest.fixture
def folder(tiny_network, tmp_path, tokenizer_folder):
    with torch.no_grad():
        for parameter in tiny_network.parameters():
            parameter.copy_(torch.randn_like(parameter).to(torch.bfloat16) * 0.2)
    export_network(tiny_network, tmp_path, tokenizer_folder)
    return tmp_path


def test_logits_equal_those_of_transformers(tiny_network, folder):
    from transformers import AutoModelForCausalLM

    tokens = torch.randint(0, 512, (2, 50))
    theirs = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)

    with torch.no_grad():
        ours = tiny_network.logits(tiny_network(tokens)[-1])
        assert torch.allclose(theirs(tokens).logits, ours, atol=1e-4)


def test_a_new_network_copies_from_the_text():
    network = TrainableLlama(ModelShape(vocab_size=2048))
    initialize_copy_circuit(network, seed=0)
    once = torch.randint(0, 2048, (1, 120), generator=torch.Generator().manual_seed(1))
    tokens = torch.cat((once, once), dim=1)

    with torch.no_grad():
        predicted = network.logits(network(tokens)[-1]).argmax(-1)

    accuracy = (predicted[0, 124:-1] == tokens[0, 125:]).float().mean()
    assert accuracy > 0.8


def test_the_embedded_target_has_at_most_sixteen_million_parameters_in_twelve_layers():
    network = TrainableLlama(ModelShape())

    assert 12 <= network.shape.layers
    assert 16e6 >= sum(parameter.numel() for parameter in network.parameters())


@pytest.mark.parametrize("kind", [MtpBlock, Eagle1])
def test_a_later_step_attends_to_true_features_only_up_to_the_start_of_the_draft(kind, tiny_shape):
    """A change of the feature at position 6 reaches step 2 at position 8 and not at position 7."""
    torch.manual_seed(0)
    block = kind(tiny_shape)
    with torch.no_grad():
        for parameter in block.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
        hidden, embedded = torch.randn(1, 10, 64), torch.randn(1, 10, 64)
        changed = hidden.clone()
        changed[0, 6] += 1.0
        before = [output.feature for output in block.unroll(hidden, embedded, 3)]
        after = [output.feature for output in block.unroll(changed, embedded, 3)]

    first_changed = [((a - b).abs().amax(-1)[0] > 1e-6).nonzero()[0].item() for a, b in zip(before, after, strict=True)]
    assert [6, 7, 8] == first_changed


def test_shifted_rows_move_right():
    assert [0.0, 0.0, 1.0] == shift_right(torch.tensor([[[0.0], [1.0], [2.0]]]), 1).flatten().tolist()


def test_eagle_tables_are_offsets_and_membership(tiny_shape):
    draft_ids = draft_vocabulary(torch.tensor([5, 5, 9, 9, 9, 300]), 512, 3, required_ids=(0,))
    eagle = Eagle3(tiny_shape, draft_ids)

    assert [0, 5, 9] == eagle.draft_token_ids.tolist()
    assert eagle.draft_token_ids.tolist() == eagle.t2d.nonzero().squeeze(1).tolist()


def test_published_names(tiny_shape):
    eagle = Eagle3(tiny_shape, torch.arange(8))
    assert {"fc.weight", "midlayer.hidden_norm.weight", "midlayer.self_attn.q_proj.weight", "d2t", "t2d"} <= set(
        eagle.state_dict()
    )
    assert (64, 3 * 64) == tuple(eagle.fc.weight.shape)
    assert "layers.0.post_attention_layernorm.weight" in Eagle1(tiny_shape).state_dict()
    assert {"0.0.linear.weight", "3.0.linear.bias"} <= set(Medusa(64).state_dict())
    assert (2, 6, 9) == eagle3_hidden_state_layers(12)
