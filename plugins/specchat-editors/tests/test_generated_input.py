"""Generated lines and frames from an editor: the same process answers the next request."""

from __future__ import annotations

import pytest

from tests.faults import generated
from tests.host.conftest import runtime  # noqa: F401 (a fixture)


@pytest.mark.parametrize("protocol", ["lsp", "acp"])
def test_generated_input_ends_nothing(runtime, protocol):  # noqa: F811 (the fixture)
    survived = generated.feed(protocol, 200, seed=20)

    assert survived.is_alive, survived
