"""The registry: lazy, isolated, and plain about who is to blame."""

import dataclasses
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sb3_hrl import registry
from sb3_hrl.errors import PluginError
from sb3_hrl.experiments.cli import main
from sb3_hrl.registry import ALGORITHMS, WRAPPERS, AlgorithmSpec, get_plugin, get_spec, plugins, resolve
from sb3_hrl.wrappers import ActionHold

Announce = Callable[[str, str], None]


def test_first_party_parts_are_announced() -> None:
    assert get_plugin(ALGORITHMS, "hppo").distribution.startswith("sb3-hrl ")
    assert resolve(WRAPPERS, "action_hold") is ActionHold
    assert resolve(WRAPPERS, "sb3_hrl.wrappers.action_hold.ActionHold") is ActionHold


def test_listing_imports_nothing() -> None:
    code = (
        "import sys; from sb3_hrl import registry; [registry.plugins(g) for g in registry.GROUPS]; print(sorted(sys.modules))"
    )
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "'sb3_hrl.registry'" in modules
    assert "'sb3_hrl.hppo'" not in modules
    assert "'torch'" not in modules


def test_a_broken_plugin_breaks_only_its_own_name(announce: Announce) -> None:
    announce("broken-dist", "[sb3_hrl.wrappers]\nbroken = module_that_is_not_there:Wrapper\nhalf = sb3_hrl.wrappers:Missing\n")
    assert resolve(WRAPPERS, "action_hold") is ActionHold
    with pytest.raises(
        PluginError, match=r"'broken' of broken-dist 1\.0 does not load.*No module named 'module_that_is_not_there'"
    ):
        resolve(WRAPPERS, "broken")
    with pytest.raises(PluginError, match=r"'half' of broken-dist 1\.0 does not load.*Missing"):
        resolve(WRAPPERS, "half")


def test_a_plugin_that_exits_breaks_only_its_own_name(announce: Announce, tmp_path: Path) -> None:
    announce("exit-dist", "[sb3_hrl.wrappers]\nexits = exits_at_import:X\nnumber = numbers_module:X\n")
    (tmp_path / "dists" / "exits_at_import.py").write_text("raise SystemExit('no licence')\n")
    (tmp_path / "dists" / "numbers_module.py").write_text("X = 3\n")
    with pytest.raises(PluginError, match=r"'exits' of exit-dist 1\.0 does not load .*SystemExit: no licence"):
        resolve(WRAPPERS, "exits")
    with pytest.raises(PluginError, match=r"'number' of exit-dist 1\.0 does not load .*expected something to call, got int"):
        resolve(WRAPPERS, "number")


def test_a_field_that_does_not_load_names_its_distribution(announce: Announce, tmp_path: Path) -> None:
    announce("half-dist", "[sb3_hrl.algorithms]\nhalf = half_module:SPEC\n")
    (tmp_path / "dists" / "half_module.py").write_text(
        "from sb3_hrl.registry import AlgorithmSpec\n"
        "SPEC = AlgorithmSpec('half', 'half_module:Nope', 'half_module:h.yml', 'half_module:s', 'half_module:c')\n"
    )
    with pytest.raises(PluginError, match=r"the algorithm of the sb3_hrl.algorithms plug-in 'half' of half-dist 1\.0 .*Nope"):
        get_plugin(ALGORITHMS, "half").load_field("algorithm")


def test_one_name_twice_is_refused_with_both_named(announce: Announce) -> None:
    announce("rival", "[sb3_hrl.algorithms]\nhppo = rival:SPEC\n")
    with pytest.raises(
        PluginError, match=r"'hppo' is announced twice, by .*sb3-hrl 0.* and|'hppo' is announced twice.*rival 1\.0 and"
    ):
        get_spec("hppo")
    assert {"rival", "sb3-hrl"} <= {part.split()[0] for part in plugins(ALGORITHMS)["hppo"].distribution.split(" and ")}


def test_an_unknown_name_gets_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"no sb3_hrl.wrappers plug-in is named 'action_hld', did you mean 'action_hold'\?"):
        resolve(WRAPPERS, "action_hld")
    with pytest.raises(ValueError, match=r"has no 'ActionHld', did you mean 'ActionHold'\?"):
        resolve(WRAPPERS, "sb3_hrl.wrappers.ActionHld")
    with pytest.raises(ValueError, match="there is no module 'nowhere'"):
        resolve(WRAPPERS, "nowhere.at.All")


def test_a_spec_is_frozen_and_checked(announce: Announce) -> None:
    spec = get_spec("hppo")
    with pytest.raises(dataclasses.FrozenInstanceError):
        spec.name = "other"  # type: ignore[misc]
    with pytest.raises(ValueError, match=r"AlgorithmSpec.algorithm of 'x': expected 'package:name', got 'a.b.C'"):
        AlgorithmSpec("x", "a.b.C", "p:f.yml", "m:s", "m:c")
    announce("odd", "[sb3_hrl.algorithms]\nother = sb3_hrl.hppo.spec:SPEC\nnone = sb3_hrl.hppo:HPPO\n")
    with pytest.raises(PluginError, match="the entry point is named 'other', its AlgorithmSpec 'hppo'"):
        get_spec("other")
    with pytest.raises(PluginError, match="expected an AlgorithmSpec"):
        get_spec("none")


def test_a_broken_env_module_costs_only_its_ids(announce: Announce, tmp_path: Path) -> None:
    announce("env-dist", "[sb3_hrl.envs]\nbroken = no_such_module\ngood = good_envs_module\n")
    (tmp_path / "dists" / "good_envs_module.py").write_text(
        "import gymnasium\ngymnasium.register('GoodEnv-v0', 'tests.envs:ScriptedEnv')\n"
    )
    with pytest.warns(RuntimeWarning, match=r"sb3_hrl.envs plug-in 'broken' of env-dist 1\.0 does not load"):
        registry.register_envs()
    import gymnasium

    assert "GoodEnv-v0" in gymnasium.registry
    del gymnasium.registry["GoodEnv-v0"]


def test_the_plugins_command(announce: Announce, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plugins"]) == 0
    output = capsys.readouterr().out
    for word in ("hppo", "action_hold", "native", "sb3-hrl 0.", "sb3_hrl.wrappers.action_hold:ActionHold", "yes"):
        assert word in output
    announce("broken-dist", "[sb3_hrl.wrappers]\nbroken = module_that_is_not_there:Wrapper\n")
    assert main(["plugins"]) == 1
    output = capsys.readouterr().out
    assert "broken-dist 1.0" in output
    assert "No module named 'module_that_is_not_there'" in output
