"""The host of tests/host, for edits by commands."""

from tests.host.conftest import runtime  # noqa: F401 (a fixture)
