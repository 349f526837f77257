"""The plugin as an installation leaves it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.plugins.conftest import installed_plugin

sys.path.insert(0, str(Path(__file__).parent))  # for `plugin_heads`


@pytest.fixture(autouse=True, scope="module")
def installed(tmp_path_factory):
    with installed_plugin(Path(__file__).parents[1], tmp_path_factory.mktemp("site")):
        import plugin_heads  # noqa: F401 - adds the tiny heads

        yield
