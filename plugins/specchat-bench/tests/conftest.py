"""The plugin as an installation leaves it."""

from tests.plugins.conftest import install, plugin_site  # noqa: F401 (a fixture)

installed = plugin_site(__file__)
