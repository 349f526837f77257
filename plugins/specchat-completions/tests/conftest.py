"""The plugin as an installation leaves it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.plugins.conftest import installed_plugin


@pytest.fixture(autouse=True, scope="module")
def installed(tmp_path_factory):
    with installed_plugin(Path(__file__).parents[1], tmp_path_factory.mktemp("site")):
        yield
