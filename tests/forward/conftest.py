"""The native kernels of this CPU, and as they are compiled for older ones."""

import pytest
import torch

from specchat.forward import native_ops

OLD_CPUS = [pytest.param(name, marks=pytest.mark.full) for name in ("DEFAULT", "AVX512")]


@pytest.fixture(params=["all", "AVX2", *OLD_CPUS], scope="module")
def kernels(request, tmp_path_factory):
    """The kernels as compiled for an older CPU than this one, and for this one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPECCHAT_CACHE", str(tmp_path_factory.mktemp("cache")))
        if request.param != "all":
            known = {"DEFAULT": 0, "AVX2": 1, "AVX512": 2}
            if known[request.param] > known.get(torch.backends.cpu.get_cpu_capability(), 0):
                pytest.skip(f"this CPU has no {request.param}")
            patch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: request.param)
            for extension in ("avx512_bf16", "vnni"):
                patch.setattr(torch.cpu, f"_is_{extension}_supported", lambda: False)
        yield native_ops.native_kernels.__wrapped__()
