"""The plugin as an installation leaves it."""

from tests.plugins.conftest import plugin_site

installed = plugin_site(__file__)
