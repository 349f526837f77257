"""The fake GPU refuses what a GPU refuses, and counts what costs time there."""

import gc

import pytest
import torch

from specchat.forward.cuda.cuda_graphs import CudaGraphCapture
from tests.each_row import each_row
from tests.fake_gpu import CaptureError, MixedDevicesError, fake_gpu

GPU = torch.device("cuda")


@pytest.fixture
def gpu():
    with fake_gpu() as fake:
        yield fake


@pytest.mark.usefixtures("gpu")
def test_devices_do_not_mix():
    with pytest.raises(MixedDevicesError, match="add"):
        torch.ones(3, device=GPU) + torch.ones(3)


def test_waits_are_counted(gpu):
    numbers = torch.ones(3).to(GPU, non_blocking=True)
    assert not gpu.waits

    assert numbers.tolist() == [1, 1, 1]
    assert bool(numbers.sum() == 3)
    assert numbers.cpu().device.type == "cpu"
    numbers.nonzero()

    assert gpu.waits.total() == 4


@pytest.mark.usefixtures("gpu")
def test_integers_are_counted_as_gpus_count_them():
    numbers = torch.tensor([0, 2, 2, 3], dtype=torch.int32, device=GPU)

    counts = torch.histc(numbers, bins=3, min=0, max=2)

    assert counts.dtype == torch.int32
    assert counts.tolist() == [1, 0, 2]


def test_kernels_are_counted_and_views_are_not(gpu):
    numbers = torch.ones(4, 4, device=GPU)
    gpu.reset()

    doubled = (numbers * 2).t()[1:].reshape(2, 6)  # a product, and a copy by reshape
    doubled.view(-1)[:3].add_(1)

    assert gpu.launches == 3


def test_bytes_are_counted_once_for_each_storage_and_while_it_lives(gpu):
    numbers = torch.zeros(1000, dtype=torch.float32, device=GPU)
    rows = numbers.view(10, 100)[3:]
    assert gpu.held_bytes == 4000
    del numbers
    gc.collect()
    assert gpu.held_bytes == 4000
    del rows
    gc.collect()
    assert gpu.held_bytes == 0


def test_more_than_the_memory_is_refused():
    with fake_gpu(memory_bytes=1000), pytest.raises(torch.OutOfMemoryError):
        torch.zeros(1000, device=GPU)


def test_a_graph_computes_again_at_the_same_addresses(gpu):
    numbers = torch.ones(3, device=GPU)
    results = []
    replay = CudaGraphCapture(GPU)(lambda: results.append(numbers * 2))

    numbers.fill_(5)
    replay()

    assert results[-1].tolist() == [10, 10, 10]
    assert gpu.captures == 2  # and the small one that keeps the pool alive
    assert gpu.replays == 1


@pytest.mark.usefixtures("gpu")
@each_row("run", [lambda numbers: numbers.tolist(), lambda numbers: numbers.add_(torch.ones(3).to(GPU))])
def test_a_graph_captures_no_wait_and_no_copy_from_the_host(run):
    numbers = torch.ones(3, device=GPU)
    graph = torch.cuda.CUDAGraph()

    with pytest.raises(CaptureError), torch.cuda.graph(graph):
        run(numbers)


@pytest.mark.usefixtures("gpu")
def test_nothing_is_captured_into_a_pool_whose_graphs_are_gone():
    pool = torch.cuda.graph_pool_handle()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):
        pass
    del graph
    gc.collect()

    with pytest.raises(CaptureError, match="gone"), torch.cuda.graph(torch.cuda.CUDAGraph(), pool=pool):
        pass


def test_shapes_of_a_large_model_take_no_memory():
    with fake_gpu(has_numbers=False) as gpu:
        weights = torch.zeros(2**20, 2**14, dtype=torch.bfloat16, device=GPU)
        product = torch.ones(1, 2**14, dtype=torch.bfloat16, device=GPU) @ weights.T

        assert product.shape == (1, 2**20)
        assert gpu.held_bytes > 2**35
