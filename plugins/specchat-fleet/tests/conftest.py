"""The plugin as an installation leaves it."""

import sys
from pathlib import Path

from tests.plugins.conftest import plugin_site

sys.path.insert(0, str(Path(__file__).parent))  # for `fake_server`
site = plugin_site(__file__)
