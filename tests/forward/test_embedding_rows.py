"""Embeddings in a file: a row is read when a pass has its token for the first time. Blocks on a GPU are looked up."""

import pytest
import torch

from specchat.forward.linear.block_linear import BlockLinear, sample_weight
from specchat.forward.llama import embedding_rows
from specchat.forward.llama.embedding_rows import BlockEmbedding, EmbeddingRows
from tests.each_row import each_row
from tests.fake_gpu import fake_gpu

TABLE = torch.arange(60.0).view(20, 3)


class Reader:
    """Reads from TABLE, and knows which rows were read."""

    def __init__(self):
        self.read = []

    def __call__(self, tokens):
        self.read.append(list(tokens))
        return TABLE[tokens]


def rows_of(reader, monkeypatch, kept=8):
    monkeypatch.setattr(embedding_rows, "KEPT_BYTES", kept * TABLE[0].nbytes)
    return EmbeddingRows((20, 3), torch.float32, reader)


def test_each_row_is_read_once(monkeypatch):
    reader = Reader()
    rows = rows_of(reader, monkeypatch)

    for tokens in ([4], [7, 4, 7, 2], [2, 4], []):
        assert torch.equal(rows[torch.tensor(tokens).long()], TABLE[tokens])

    assert [[4], [2, 7]] == reader.read


def test_any_shape_of_tokens_is_looked_up_as_in_a_tensor(monkeypatch):
    tokens = torch.tensor([[3, -1], [19, 3]])

    assert torch.equal(rows_of(Reader(), monkeypatch)[tokens], TABLE[tokens])
    with pytest.raises(IndexError):
        rows_of(Reader(), monkeypatch)[torch.tensor([20])]


def test_rows_that_find_no_room_replace_the_others(monkeypatch):
    reader = Reader()
    rows = rows_of(reader, monkeypatch, kept=4)

    for tokens in ([0, 1, 2], [2, 3, 4], [2]):
        assert torch.equal(rows[torch.tensor(tokens)], TABLE[tokens])

    assert [[0, 1, 2], [2, 3, 4]] == reader.read


def test_a_pass_with_more_tokens_than_are_kept_reads_them_all(monkeypatch):
    rows = rows_of(Reader(), monkeypatch, kept=4)
    tokens = torch.arange(20).flip(0)

    assert torch.equal(rows[tokens], TABLE[tokens])
    assert torch.equal(rows[tokens[:3]], TABLE[tokens[:3]])


def test_rows_are_kept_inside_and_outside_of_inference_mode(monkeypatch):
    rows = rows_of(Reader(), monkeypatch)
    with torch.inference_mode():
        assert torch.equal(rows[torch.tensor([1])], TABLE[[1]])

    assert torch.equal(rows[torch.tensor([1, 2])], TABLE[[1, 2]])


@pytest.mark.full
@each_row("type_name", ["Q8_0", "Q4_K", "MXFP4"])
def test_blocks_are_looked_up_in_a_graph(type_name):
    """As a draft tree does, whose tokens the device has chosen: without a wait, and without a copy from the host."""
    with fake_gpu():
        device = torch.device("cuda")
        weight = sample_weight(type_name, device)
        table = BlockEmbedding(BlockLinear((weight,), None, lambda *_: weight.low), torch.bfloat16)
        tokens, graph = torch.tensor([5, 120, 5]).to(device), torch.cuda.CUDAGraph()

        with torch.cuda.graph(graph, pool=torch.cuda.graph_pool_handle()):
            rows = table[tokens]
        tokens.copy_(torch.tensor([7, 5, 0]))
        graph.replay()

        assert torch.equal(rows.cpu(), weight.dequantized(torch.bfloat16).cpu()[[7, 5, 0]])
