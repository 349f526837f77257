"""What the engine process takes over from the client that starts it."""

from __future__ import annotations

from specchat.checks import health_checks
from specchat.host.client import connect
from specchat.host.environment import differing_variables, host_environment, variable_digests
from tests.each_row import each_row


@each_row(
    "name, value",
    [
        ("HF_TOKEN", "secret"),
        ("HF_HUB_OFFLINE", "1"),
        ("https_proxy", "http://proxy"),
        ("CUDA_VISIBLE_DEVICES", ""),
        ("SPECCHAT_KERNELS", "none"),
        ("CXX", "clang++"),
    ],
)
def test_what_the_client_sees_the_engine_sees(monkeypatch, name, value):
    monkeypatch.setenv(name, value)

    assert value == host_environment()[name]


def test_a_relative_folder_is_that_of_the_client(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HOME", "hub")

    assert str(tmp_path / "hub") == host_environment()["HF_HOME"]


def test_what_belongs_to_one_terminal_stays_there(monkeypatch):
    for name in ("HOME", "PYTHONPATH", "TERM", "LANG"):
        monkeypatch.setenv(name, "/elsewhere")

    assert "/elsewhere" not in host_environment().values()


def test_digests_do_not_hold_the_values(monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "secret")

    assert "secret" not in str(variable_digests())


def test_a_running_engine_tells_which_variables_differ(runtime, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "one")
    host_info = connect("test").host_info

    assert [] == differing_variables(host_info["environment"])
    monkeypatch.setenv("HF_TOKEN", "two")
    assert ["HF_TOKEN"] == differing_variables(host_info["environment"])
    [finding] = health_checks.engine_variables(host_info)
    assert finding.message.startswith("HF_TOKEN differs from this terminal; 'specchat host stop'")
