"""Without a GPU, the tests of this folder run on the fake one."""

from collections.abc import Iterator

import pytest
import torch

from tests.fake_gpu import FakeGpu, fake_gpu


@pytest.fixture(autouse=True)
def gpu() -> Iterator[FakeGpu | None]:
    """The fake GPU; None where there is a real one."""
    if torch.cuda.is_available():
        yield None
    else:
        with fake_gpu() as fake:
            yield fake
