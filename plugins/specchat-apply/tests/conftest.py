"""The plugin as an installation leaves it."""

from tests.app.agent.conftest import empty_repository, files, project  # noqa: F401 (fixtures)
from tests.host.conftest import runtime  # noqa: F401 (a fixture)
from tests.plugins.conftest import plugin_site

installed = plugin_site(__file__)
