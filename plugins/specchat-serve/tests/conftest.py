"""The plugin, and those of sketches and completions, installed, for this process and those that tests start."""

from tests.plugins.conftest import plugin_site

installed = plugin_site(__file__, "apply", "completions", is_for_children=True)
