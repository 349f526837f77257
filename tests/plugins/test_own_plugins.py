"""A variant of a plugin that is not installed is one line that says what to install, wherever it is named."""

import click
import pytest

from specchat.chat.router import check_available
from specchat.cli.options import VariantParam
from specchat.errors import ProfileError
from specchat.plugins.own_plugins import PLUGIN_BY_VARIANT
from specchat.profile.keys import Profile


def test_a_variant_of_a_missing_plugin_names_what_to_install():
    for name, plugin in PLUGIN_BY_VARIANT.items():
        for names_it in (
            lambda name=name: VariantParam().convert(name, None, None),
            lambda name=name: check_available(name, frozenset()),
            lambda name=name: Profile().override({"speculation.variant": name}),
        ):
            with pytest.raises((ProfileError, click.UsageError)) as raised:
                names_it()
            assert f"pip install ./plugins/specchat-{plugin}" in str(raised.value), name
