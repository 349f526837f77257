"""The GPU of the tests of this folder: a fake one, except where tests are for a real one and it is here."""

from collections.abc import Iterator

import pytest
import torch

from tests.fake_gpu import FakeGpu, fake_gpu


@pytest.fixture(autouse=True)
def gpu(request: pytest.FixtureRequest) -> Iterator[FakeGpu | None]:
    """The fake GPU; None in tests that are marked `gpu` where there is a real one."""
    if request.node.get_closest_marker("gpu") and torch.cuda.is_available():
        yield None
    else:
        with fake_gpu() as fake:
            yield fake
