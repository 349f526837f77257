"""The plugin as an installation leaves it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.plugins.conftest import installed_plugin

sys.path.insert(0, str(Path(__file__).parent))  # for `hello_screen`


@pytest.fixture(autouse=True, scope="module")
def site(tmp_path_factory):
    """The folder with its metadata."""
    folder = tmp_path_factory.mktemp("site")
    with installed_plugin(Path(__file__).parents[1], folder):
        yield folder
