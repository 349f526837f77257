"""The host of tests/host, for tests of its front ends."""

from tests.host.conftest import runtime  # noqa: F401 (a fixture)
