"""The plugin as an installation leaves it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.app.agent.conftest import empty_repository, files, project  # noqa: F401 (fixtures)
from tests.host.conftest import runtime  # noqa: F401 (a fixture)
from tests.plugins.conftest import installed_plugin


@pytest.fixture(autouse=True, scope="module")
def installed(tmp_path_factory):
    with installed_plugin(Path(__file__).parents[1], tmp_path_factory.mktemp("site")):
        yield
