"""Every place of rl-zoo3 that the bridge touches is as the bridge expects it, and is changed as it should be."""

import argparse
import importlib
import os
import subprocess
import sys
import types
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import pytest
import rl_zoo3
import rl_zoo3.exp_manager
import rl_zoo3.hyperparams_opt
import rl_zoo3.import_envs
import rl_zoo3.utils
from stable_baselines3 import PPO

from sb3_hrl.hppo import HPPO
from sb3_hrl.registry import ALGORITHMS, get_spec, plugins
from sb3_hrl.zoo import hook
from sb3_hrl.zoo.manager import PluginExperimentManager

STOCK = ["a2c", "ddpg", "dqn", "ppo", "sac", "td3", "ars", "crossq", "qrdqn", "tqc", "trpo", "ppo_lstm"]


@pytest.mark.parametrize("name", hook.PLACES)
def test_the_places_are_there(name: str) -> None:
    assert hook.missing_places(importlib.import_module(name)) == []


def test_algos_knows_ours_and_keeps_the_zoo_s_own() -> None:
    # Each module took the same table.
    assert rl_zoo3.ALGOS is rl_zoo3.utils.ALGOS is rl_zoo3.exp_manager.ALGOS
    assert rl_zoo3.ALGOS["hppo"] is HPPO
    assert rl_zoo3.ALGOS.get("hppo") is HPPO
    assert rl_zoo3.ALGOS.get("nothing") is None
    assert set(rl_zoo3.ALGOS) >= {"hppo", *STOCK}
    assert rl_zoo3.ALGOS["ppo"] is PPO
    assert dict(rl_zoo3.ALGOS.items())["hppo"] is HPPO
    assert all(rl_zoo3.ALGOS[name].__module__.startswith(("stable_baselines3", "sb3_contrib")) for name in STOCK)


def test_sampler_and_converter() -> None:
    assert "hppo" in rl_zoo3.hyperparams_opt.HYPERPARAMS_SAMPLER
    assert "hppo" in rl_zoo3.hyperparams_opt.HYPERPARAMS_CONVERTER
    assert rl_zoo3.hyperparams_opt.HYPERPARAMS_SAMPLER["ppo"].__module__ == "rl_zoo3.hyperparams_opt"


def _manager(algo: str, **kwargs: Any) -> Any:
    return rl_zoo3.exp_manager.ExperimentManager(argparse.Namespace(), algo, "CartPole-v1", "logs", **kwargs)


def test_config_path() -> None:
    assert rl_zoo3.exp_manager.ExperimentManager is PluginExperimentManager
    assert _manager("hppo").config == str(get_spec("hppo").hyperparams_path)
    assert _manager("hppo", config="own.yml").config == "own.yml"
    assert _manager("ppo").config.endswith("rl_zoo3/hyperparams/ppo.yml")
    assert not _manager("ppo").is_plugin


def test_the_manager_has_what_ours_relies_on() -> None:
    for name in ("_eval_env_kwargs_args", "_is_atari", "continue_training", "custom_hyperparams", "env_name", "save_path"):
        assert hasattr(_manager("ppo"), name), name


def test_a_broken_install_of_ours_does_not_break_the_zoo() -> None:
    code = (
        "import sys; sys.modules['sb3_hrl.zoo'] = None; import rl_zoo3; print('hppo' in rl_zoo3.ALGOS, 'ppo' in rl_zoo3.ALGOS)"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert process.stdout.strip() == "False True"
    assert "sb3-hrl cannot extend rl_zoo3" in process.stderr


def test_short_names_of_wrappers() -> None:
    hyperparams = {"env_wrapper": [{"action_hold": {"hold_seconds": 0.1, "dt": 0.05}}, "rl_zoo3.wrappers.HistoryWrapper"]}
    wrap = rl_zoo3.utils.get_wrapper_class(hyperparams)
    assert wrap is not None
    env = wrap(gymnasium.make("Pendulum-v1"))
    assert env.get_wrapper_attr("n_hold")(0) == 2
    assert type(env).__name__ == "HistoryWrapper"
    assert list(hyperparams["env_wrapper"][0]) == ["action_hold"]  # what is saved keeps the short name
    assert rl_zoo3.utils.get_wrapper_class({}) is None
    assert rl_zoo3.utils.get_wrapper_class({"env_wrapper": None}) is None


def test_a_changed_zoo_gives_one_warning_with_a_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hook, "_has_warned", False)
    algorithms = hook.LazyAlgorithms({"ppo": PPO}, plugins(ALGORITHMS))
    monkeypatch.setattr(hook, "_algorithms", algorithms)
    assert "hppo" in algorithms
    changed = types.ModuleType("rl_zoo3.utils")
    changed.ALGOS = {"ppo": PPO}  # type: ignore[attr-defined]
    changed.create_test_env = lambda env_id: None  # type: ignore[attr-defined]
    with pytest.warns(RuntimeWarning, match=r"lacks get_wrapper_class.*pip install 'rl_zoo3.*SB3_HRL_NO_ZOO_HOOK=1") as caught:
        hook.after_import(changed)
    assert len(caught) == 1
    hook.after_import(types.ModuleType("rl_zoo3.exp_manager"))  # the second one would be an error here
    assert "create_test_env(hyperparams)" in str(caught[0].message)
    assert changed.ALGOS == {"ppo": PPO}  # untouched
    assert list(algorithms) == ["ppo"]  # and nobody offers what would not work


def test_a_plugin_cannot_replace_a_stock_algorithm(
    announce: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hook, "_algorithms", None)
    announce("usurper", "[sb3_hrl.algorithms]\nppo = usurper:SPEC\n")
    utils = types.ModuleType("rl_zoo3.utils")
    for name in hook.PLACES["rl_zoo3.utils"]:
        setattr(utils, name, getattr(rl_zoo3.utils, name))
    utils.ALGOS = {"ppo": PPO}  # type: ignore[attr-defined]
    with pytest.warns(UserWarning, match=r"the algorithm 'ppo' of usurper 1\.0 is ignored: rl_zoo3 has its own"):
        hook._adapt_utils(utils)
    assert utils.ALGOS["ppo"] is PPO
    assert "ppo" not in utils.ALGOS.plugin_names


# --- the hook at interpreter start


def _python(code: str, *options: str, **env: str) -> str:
    process = subprocess.run(
        [sys.executable, *options, "-c", code], capture_output=True, text=True, check=True, env={**os.environ, **env}
    )
    assert process.stderr == ""
    return process.stdout.strip()


def test_start_up_imports_next_to_nothing() -> None:
    added = _python("import sys; print([m for m in sys.modules if 'sb3' in m or m in ('importlib.metadata', 'torch', 're')])")
    assert [name for name in eval(added) if not name.startswith(("_editable", "__editable"))] == ["_sb3_hrl_boot"]


@pytest.mark.parametrize("options", [(), ("-I",), ("-E",), ("-s",), ("-P",)])
def test_the_hook_is_there_once(options: tuple[str, ...]) -> None:
    count = "import sys, _sb3_hrl_boot as b; b.install(); print(sys.meta_path.count(b.ZooFinder))"
    assert _python(count, *options) == "1"


def test_the_hook_can_be_off() -> None:
    check = "import sys, _sb3_hrl_boot as b; print(b.ZooFinder in sys.meta_path)"
    assert _python(check, SB3_HRL_NO_ZOO_HOOK="1") == "False"
    assert _python(check, SB3_HRL_NO_ZOO_HOOK="0") == "True"


def test_both_start_up_files_name_the_boot_module() -> None:
    startup = Path(__file__).parents[2] / "startup"
    assert (startup / "SB3_HRL.pth").read_text() == "import _sb3_hrl_boot\n"
    module, _, function = (startup / "SB3_HRL.start").read_text().strip().partition(":")
    assert callable(getattr(importlib.import_module(module), function))


@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
def test_children_know_the_algorithm(method: str, tmp_path: Path) -> None:
    code = (
        "import multiprocessing, sys\n"
        "def child():\n    import rl_zoo3\n    sys.exit(0 if rl_zoo3.ALGOS['hppo'].__name__ == 'HPPO' else 3)\n"
        "if __name__ == '__main__':\n"
        f"    process = multiprocessing.get_context('{method}').Process(target=child)\n"
        "    process.start(); process.join(); sys.exit(process.exitcode)\n"
    )
    script = tmp_path / "script.py"
    script.write_text(code)
    assert subprocess.run([sys.executable, str(script)], check=False).returncode == 0


def test_warnings_are_errors_here() -> None:
    """The suite's own setting, on which 'no warning' in other tests relies."""
    with pytest.raises(UserWarning, match="probe"):
        warnings.warn("probe")
