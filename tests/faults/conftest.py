from tests.host.conftest import runtime  # noqa: F401 (a fixture)
