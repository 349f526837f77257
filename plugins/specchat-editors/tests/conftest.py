"""The plugin and that of completions as an installation leaves them, in this process and in those that tests start."""

from tests.plugins.conftest import plugin_site

installed = plugin_site(__file__, "completions", is_for_children=True)
