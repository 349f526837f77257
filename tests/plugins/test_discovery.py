"""Finding plugins: their extensions, their faults, and the cost without plugins."""

import tomllib
from pathlib import Path

import pytest

from specchat.cli.main import run
from specchat.plugins.discovery import find_extensions, installed_plugins
from tests.plugins.conftest import rediscover
from tests.processes import modules_after

SHOUT = """
@hookimpl
def register_slash_commands():
    return [Extension("shout", "say it louder", "shout:shout", "WORDS")]
"""
BROKEN = {
    "import": ("import nothing_of_this_name", "ModuleNotFoundError: No module named 'nothing_of_this_name'"),
    "exit": ("raise SystemExit(3)", "SystemExit: 3"),
    "raises": ("@hookimpl\ndef register_context_loaders(): raise ValueError('not today')", "ValueError: not today"),
    "no list": ("@hookimpl\ndef register_context_loaders(): return 5", "must return a list of extensions, not int"),
    "no offer": (
        "@hookimpl\ndef register_context_loaders(): return ['clip']",
        "must return a list of extensions, not of str",
    ),
    "no such hook": ("@hookimpl\ndef register_drafter(): return []", "unknown hook 'register_drafter'"),
    "argument": ("@hookimpl\ndef register_context_loaders(session): return []", "Argument(s) {'session'}"),
    "bad name": (
        "@hookimpl\ndef register_context_loaders(): return [Extension('9 clips', 'x', 'a:b')]",
        "'9 clips' is not a valid name",
    ),
    "bad place": (
        "@hookimpl\ndef register_context_loaders(): return [Extension('clip', 'x', 'a.b')]",
        "'package.module:attribute'",
    ),
    "no words": (
        "@hookimpl\ndef register_context_loaders(): return [Extension('clip', '', 'a:b')]",
        "needs a description of one line",
    ),
    "twice": (
        "@hookimpl\ndef register_context_loaders(): return [Extension('clip', 'x', 'a:b')] * 2",
        "'clip' is registered twice",
    ),
}


def test_a_plugin_has_extensions(install):
    install("shout", SHOUT)

    [plugin] = installed_plugins()
    assert ("shout", "shout", "1.5", "") == (plugin.name, plugin.package, plugin.version, plugin.error)
    assert "say it louder" == find_extensions("slash_commands")["shout"].description
    assert {} == find_extensions("drafters")


@pytest.mark.parametrize(("code", "message"), BROKEN.values(), ids=list(BROKEN))
def test_a_broken_plugin_is_reported_in_one_line_and_the_others_work(install, capsys, code, message):
    install("alas", code)
    install("shout", SHOUT)

    assert ["shout"] == list(find_extensions("slash_commands"))
    assert {} == find_extensions("context_loaders")
    line = capsys.readouterr().err
    assert line.startswith("specchat: plugin alas is left out: ")
    assert message in line
    assert 1 == line.count("\n")


def test_a_name_that_is_taken_is_left_out_and_reported_once(install, capsys):
    install("shout", SHOUT)
    install("yell", SHOUT)

    assert "shout" == find_extensions("slash_commands")["shout"].plugin_name
    assert "shout" == find_extensions("slash_commands")["shout"].plugin_name
    assert "specchat: plugin yell: slash command 'shout' is left out, the name is taken\n" == capsys.readouterr().err
    assert {} == find_extensions("slash_commands", ("shout",))


def test_two_packages_with_a_plugin_of_one_name_are_both_left_out(install, capsys):
    install("shout", SHOUT)
    install("shout", SHOUT, package="louder")

    assert {} == find_extensions("slash_commands")
    assert "both have a plugin of this name; uninstall one\n" in capsys.readouterr().err


@pytest.mark.parametrize(("chosen", "left"), [("", []), ("yell", ["yell"]), (" shout , yell ", ["shout", "yell"])])
def test_an_environment_variable_selects_plugins(install, monkeypatch, chosen, left):
    install("shout", SHOUT)
    install("yell", SHOUT.replace("shout", "yell"))
    monkeypatch.setenv("SPECCHAT_LOAD_PLUGINS", chosen)
    rediscover()

    assert left == list(find_extensions("slash_commands"))


def test_a_selected_plugin_that_is_missing_is_reported(install, monkeypatch, capsys):
    monkeypatch.setenv("SPECCHAT_LOAD_PLUGINS", "shuot")
    rediscover()

    assert {} == find_extensions("slash_commands")
    assert (
        "plugin shuot is left out: SPECCHAT_LOAD_PLUGINS names it, and it is not installed" in capsys.readouterr().err
    )


def test_the_list_has_the_extensions_and_faults_of_each_plugin(install, capsys):
    install("alas", "1 / 0")
    install("shout", SHOUT.replace('"shout", "say', '"quit", "say'))
    install("yell", SHOUT.replace("shout", "yell"))

    assert 0 == run(["plugins"])
    printed = capsys.readouterr()
    assert [
        "alas (alas 1.5)",
        "  left out: ZeroDivisionError: division by zero",
        "shout (shout 1.5)",
        "  slash command 'quit' is left out, the name is taken",
        "yell (yell 1.5)",
        "  /yell WORDS            say it louder",
    ] == printed.out.splitlines()
    assert "" == printed.err


def test_without_a_plugin_discovery_imports_nothing():
    loaded = modules_after(
        "from specchat.plugins.discovery import find_extensions; assert not find_extensions('context_loaders')"
    )

    assert not {"pluggy", "importlib.metadata", "torch", "click"} & loaded


def test_the_version_is_printed_without_plugin_discovery():
    assert "pluggy" not in modules_after("from specchat.cli.main import run; run(['--version'])")


def test_an_installation_leaves_no_metadata_in_a_clone_where_tests_would_find_it():
    projects = Path(__file__).parents[2].glob("plugins/specchat-*/pyproject.toml")
    backends = {path.parent.name: tomllib.loads(path.read_text())["build-system"]["build-backend"] for path in projects}

    assert len(backends) >= 6
    assert {name: each for name, each in backends.items() if each != "hatchling.build"} == {}
