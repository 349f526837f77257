"""The bandwidth of a GPU by the name that its driver reports: that of another one must not stand for it."""

from specchat.devices import CPU, CUDA
from specchat.hub.machine import Device, gpu_bandwidth
from tests.each_row import each_row


@each_row(
    "name, gigabytes",
    [
        ("NVIDIA GeForce RTX 4090", 1008), ("NVIDIA GeForce RTX 4070 Ti SUPER", 672), ("NVIDIA L4", 300),
        ("NVIDIA A10", 600), ("NVIDIA H100 PCIe", 2000), ("NVIDIA H100 80GB HBM3", 3350),
    ],
)  # fmt: skip
def test_a_gpu_is_found_by_its_name(name, gigabytes):
    found = gpu_bandwidth(Device(CUDA, name, 24 * 2**30, 24 * 2**30))

    assert gigabytes * 1e9 == found.bytes_per_second
    assert found.gpu in name


@each_row("name", ["NVIDIA A100-SXM4-40GB", "NVIDIA L40", "NVIDIA A10G", "Quadro RTX 30900"])
def test_a_gpu_with_a_longer_name_is_unknown(name):
    assert gpu_bandwidth(Device(CUDA, name, 24 * 2**30, 24 * 2**30)) is None


def test_main_memory_has_no_entry():
    assert gpu_bandwidth(Device(CPU, "RTX 4090", 24 * 2**30, 24 * 2**30)) is None
