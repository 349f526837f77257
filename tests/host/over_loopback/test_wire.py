import pytest

from tests.host.test_wire import *  # noqa: F403

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("runtime")]
