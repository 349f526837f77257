"""The plugin as an installation leaves it, in this process and in those that tests start."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.plugins.conftest import installed_plugin

PLUGIN = Path(__file__).parents[1]
ROOT = PLUGIN.parents[1]


@pytest.fixture(autouse=True, scope="module")
def installed(tmp_path_factory):
    site = tmp_path_factory.mktemp("site")
    with installed_plugin(PLUGIN, site), pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(map(str, (site, ROOT, PLUGIN))))
        yield
