"""Every way we could think of to get a hyperparameter file wrong, and what the user is told."""

import copy
import sys
import types
from functools import cache
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
import rl_zoo3
import rl_zoo3.exp_manager  # before the stand-in plug-ins below: the start-up hook acts on this import
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stable_baselines3 import A2C, PPO, SAC
from stable_baselines3.common.callbacks import CheckpointCallback
from stable_baselines3.common.type_aliases import Schedule

from sb3_hrl import registry
from sb3_hrl.zoo import validation
from sb3_hrl.zoo.validation import ConfigError, check_config, normalise

ENV_ID = "Hopper-v5"
HEADLINE = f"error: 1 problem in the hyperparameters of PPO for {ENV_ID}\n"

GOOD = """\
default: &base
  policy: MlpPolicy
  n_timesteps: 1e6

Hopper-v5:
  <<: *base
  n_envs: 4
  n_steps: 512
  batch_size: 64
  n_epochs: 10
  learning_rate: 1e-3
  clip_range: lin_0.2
  gamma: 0.99
  gae_lambda: 0.95
  use_sde: false
  target_kl: null
  normalize: "dict(norm_obs=True)"
  policy_kwargs: "dict(activation_fn=nn.ReLU, net_arch=[64])"
  frame_stack: 2
  env_kwargs:
    forward_reward_weight: 1.0
  monitor_kwargs:
    info_keywords: [is_success]
  env_wrapper:
    - gymnasium.wrappers.TimeLimit:
        max_episode_steps: 500
    - rl_zoo3.wrappers.FrameSkip:
        skip: 2
  callback:
    - stable_baselines3.common.callbacks.CheckpointCallback:
        save_freq: 1e4
        save_path: logs
"""

POLICIES = "expected one of MlpPolicy, CnnPolicy, MultiInputPolicy, or a dotted path, got"
TIME_LIMIT = "gymnasium.wrappers.TimeLimit"
CHECKPOINT = "stable_baselines3.common.callbacks.CheckpointCallback"

# What is replaced in GOOD, by what, the line and the text of the message.
MUTATIONS: list[tuple[str, str, int, str]] = [
    # names
    ("n_steps: 512", "n_step: 512", 8, "unknown key 'n_step', did you mean 'n_steps'?"),
    ("batch_size", "batchsize", 9, "unknown key 'batchsize', did you mean 'batch_size'?"),
    ("gamma", "Gamma", 13, "unknown key 'Gamma', did you mean 'gamma'?"),
    ("learning_rate", "lr_rate", 11, "unknown key 'lr_rate', did you mean 'learning_rate'?"),
    ("env_wrapper", "env_wrappers", 24, "unknown key 'env_wrappers', did you mean 'env_wrapper'?"),
    ("frame_stack: 2", "qqqq: 2", 19, "unknown key 'qqqq'"),
    ("frame_stack: 2", "7: 2", 19, "unknown key 7"),
    ("frame_stack: 2", "on: 2", 19, "unknown key true"),
    ("frame_stack: 2", "noise_type: normal", 19, "unknown key 'noise_type'"),
    ("frame_stack: 2", "seed: 2", 19, "'seed' is passed by rl_zoo3 itself, use --seed on the command line"),
    ("frame_stack: 2", "device: cpu", 19, "'device' is passed by rl_zoo3 itself, use --device on the command line"),
    ("frame_stack: 2", "_init_setup_model: true", 19, "'_init_setup_model' is passed by rl_zoo3 itself"),
    # what is missing
    ("  policy: MlpPolicy\n", "", 4, "the key 'policy' is missing"),
    ("  n_timesteps: 1e6\n", "", 4, "the key 'n_timesteps' is missing (rl_zoo3 needs it even with -n)"),
    # types; a merged key has the line where it is written
    ("n_timesteps: 1e6", "n_timesteps: many", 3, "n_timesteps: expected a whole number, got 'many'"),
    ("n_timesteps: 1e6", "n_timesteps: 1.5e0", 3, "n_timesteps: expected a whole number, got 1.5"),
    ("batch_size: 64", "batch_size: many", 9, "batch_size: expected a whole number, got 'many'"),
    ("batch_size: 64", "batch_size: '64'", 9, "batch_size: expected a whole number, got '64'"),
    ("batch_size: 64", "batch_size: 64.5", 9, "batch_size: expected a whole number, got 64.5"),
    ("batch_size: 64", "batch_size: true", 9, "batch_size: expected a whole number, got true"),
    ("batch_size: 64", "batch_size:", 9, "batch_size: expected a whole number, got null"),
    ("batch_size: 64", "batch_size: [64]", 9, "batch_size: expected a whole number, got [64]"),
    ("batch_size: 64", "batch_size: .inf", 9, "batch_size: expected a whole number, got inf"),
    ("n_envs: 4", "n_envs: {a: 1}", 7, "n_envs: expected a whole number, got {'a': 1}"),
    ("n_envs: 4", "n_envs:", 7, "n_envs: expected a whole number, got null"),
    ("frame_stack: 2", "frame_stack: two", 19, "frame_stack: expected a whole number or null, got 'two'"),
    ("gamma: 0.99", "gamma: high", 13, "gamma: expected a number, got 'high'"),
    ("gamma: 0.99", "gamma: 0,99", 13, "gamma: expected a number, got '0,99'"),
    ("gamma: 0.99", "gamma: .nan", 13, "gamma: expected a number, got nan"),
    ("use_sde: false", "use_sde: 'False'", 15, "use_sde: expected true or false, got 'False'"),
    ("use_sde: false", "use_sde: 0", 15, "use_sde: expected true or false, got 0"),
    ("target_kl: null", "target_kl: none", 16, "target_kl: expected a number or null, got 'none'"),
    ("clip_range: lin_0.2", "clip_range: lin_", 12, "clip_range: expected a number or 'lin_<number>', got 'lin_'"),
    ("clip_range: lin_0.2", "clip_range: log_0.2", 12, "clip_range: expected a number or 'lin_<number>', got 'log_0.2'"),
    ("clip_range: lin_0.2", "clip_range: lin_0_2", 12, "clip_range: expected a number or 'lin_<number>', got 'lin_0_2'"),
    ("learning_rate: 1e-3", "learning_rate: 1e-", 11, "learning_rate: expected a number or 'lin_<number>', got '1e-'"),
    (
        "target_kl: null",
        "clip_range_vf: null",
        16,
        "clip_range_vf: expected a number or 'lin_<number>', got null (leave the key out for the default)",
    ),
    (
        "target_kl: null",
        "rollout_buffer_class: RolloutBuffer",
        16,
        "rollout_buffer_class: expected a class or null, got 'RolloutBuffer'; "
        "it cannot be set from YAML: leave the key out, or use a .py file",
    ),
    (
        "target_kl: null",
        "rollout_buffer_kwargs: dict(a=1)",
        16,
        "rollout_buffer_kwargs: expected a mapping or null, got 'dict(a=1)'",
    ),
    # ranges
    ("n_envs: 4", "n_envs: 0", 7, "n_envs: expected a whole number of at least 1, got 0"),
    ("n_steps: 512", "n_steps: -1", 8, "n_steps: expected a whole number of at least 1, got -1"),
    ("n_epochs: 10", "n_epochs: 0", 10, "n_epochs: expected a whole number of at least 1, got 0"),
    ("n_timesteps: 1e6", "n_timesteps: -1e6", 3, "n_timesteps: expected a whole number of at least 1, got -1000000"),
    ("frame_stack: 2", "frame_stack: 0", 19, "frame_stack: expected a whole number of at least 1, got 0"),
    ("gamma: 0.99", "gamma: 99e0", 13, "gamma: expected a number from 0 to 1, got 99.0"),
    ("gae_lambda: 0.95", "gae_lambda: -0.1", 14, "gae_lambda: expected a number from 0 to 1, got -0.1"),
    # policy
    ("policy: MlpPolicy", "policy: MlpPolcy", 2, f"policy: {POLICIES} 'MlpPolcy', did you mean 'MlpPolicy'?"),
    (
        "policy: MlpPolicy",
        "policy: NatureCnnPolicy",
        2,
        f"policy: {POLICIES} 'NatureCnnPolicy'; hppo and impala know that name, others sb3_hrl.cnn.NatureCnnPolicy",
    ),
    ("policy: MlpPolicy", "policy: 3", 2, f"policy: {POLICIES} 3"),
    ("policy: MlpPolicy", "policy:", 2, f"policy: {POLICIES} null"),
    (
        "policy: MlpPolicy",
        "policy: stable_baselines3.ppo.MlpPolcy",
        2,
        "policy: 'stable_baselines3.ppo.MlpPolcy' does not exist: "
        "'stable_baselines3.ppo' has no 'MlpPolcy', did you mean 'MlpPolicy'?",
    ),
    ("policy: MlpPolicy", "policy: nowhere.Mlp", 2, "policy: 'nowhere.Mlp' does not exist: there is no module 'nowhere'"),
    ("policy: MlpPolicy", "policy: sys.maxsize", 2, f"policy: expected a class, but 'sys.maxsize' is {sys.maxsize}"),
    ("net_arch=", "net_arc=", 18, "policy_kwargs: unknown key 'net_arc', did you mean 'net_arch'?"),
    ("net_arch=", "lr_schedule=", 18, "policy_kwargs: unknown key 'lr_schedule'"),
    (
        '"dict(activation_fn=nn.ReLU, net_arch=[64])"',
        "{activation_fn: nn.ReLU}",
        18,
        "policy_kwargs: activation_fn: expected a class, got 'nn.ReLU'",
    ),
    (
        '"dict(activation_fn=nn.ReLU, net_arch=[64])"',
        "dict(net_arch=[64)",
        18,
        "policy_kwargs: the Python code 'dict(net_arch=[64)' fails: "
        "SyntaxError: closing parenthesis ')' does not match opening parenthesis '['",
    ),
    (
        '"dict(activation_fn=nn.ReLU, net_arch=[64])"',
        "dict(activation_fn=mm.ReLU)",
        18,
        "policy_kwargs: the Python code 'dict(activation_fn=mm.ReLU)' fails: NameError: name 'mm' is not defined",
    ),
    (
        '"dict(activation_fn=nn.ReLU, net_arch=[64])"',
        "dict(activation_fn=nn.RELU)",
        18,
        "policy_kwargs: the Python code 'dict(activation_fn=nn.RELU)' fails: "
        "AttributeError: module 'torch.nn' has no attribute 'RELU'",
    ),
    (
        '"dict(activation_fn=nn.ReLU, net_arch=[64])"',
        "'[64, 64]'",
        18,
        "policy_kwargs: expected a mapping or null, got '[64, 64]', which gives [64, 64]",
    ),
    (
        '"dict(activation_fn=nn.ReLU, net_arch=[64])"',
        "exit()",
        18,
        "policy_kwargs: the Python code 'exit()' fails: SystemExit: None",
    ),
    ('"dict(activation_fn=nn.ReLU, net_arch=[64])"', "[64]", 18, "policy_kwargs: expected a mapping or null, got [64]"),
    # normalize, monitor, environment
    ("norm_obs=", "norm_ob=", 17, "normalize: unknown key 'norm_ob', did you mean 'norm_obs'?"),
    ("norm_obs=", "venv=", 17, "normalize: unknown key 'venv'"),
    ('"dict(norm_obs=True)"', '"True"', 17, "normalize: expected a mapping, got 'True', which gives true"),
    ('"dict(norm_obs=True)"', "3", 17, "normalize: expected true or false or a mapping, got 3"),
    ('"dict(norm_obs=True)"', "{clip_obs: ten}", 17, "normalize: clip_obs: expected a number, got 'ten'"),
    ("info_keywords", "info_keyword", 23, "monitor_kwargs: unknown key 'info_keyword', did you mean 'info_keywords'?"),
    ("info_keywords: [is_success]", "filename: here", 23, "monitor_kwargs: unknown key 'filename'"),
    ("forward_reward_weight: 1.0", "1: 1.0", 21, "env_kwargs: expected a name as key, got 1"),
    ("forward_reward_weight: 1.0", "- a", 20, "env_kwargs: expected a mapping or null, got ['a']"),
    ("env_kwargs", "eval_env_kwarg", 20, "unknown key 'eval_env_kwarg', did you mean 'eval_env_kwargs'?"),
    # wrappers
    (
        "gymnasium.wrappers.TimeLimit",
        "gymnasium.wrappers.TimeLimits",
        25,
        "env_wrapper: 'gymnasium.wrappers.TimeLimits' does not exist: "
        "'gymnasium.wrappers' has no 'TimeLimits', did you mean 'TimeLimit'?",
    ),
    (
        "gymnasium.wrappers.TimeLimit",
        "gymnasium.wraps.TimeLimit",
        25,
        "env_wrapper: 'gymnasium.wraps.TimeLimit' does not exist: there is no module 'gymnasium.wraps'",
    ),
    (
        "gymnasium.wrappers.TimeLimit",
        "gymnasium.__name__",
        25,
        "env_wrapper: expected a wrapper, but 'gymnasium.__name__' is 'gymnasium'",
    ),
    (
        "max_episode_steps: 500",
        "max_episode: 500",
        26,
        f"env_wrapper: {TIME_LIMIT}: unknown key 'max_episode', did you mean 'max_episode_steps'?",
    ),
    (
        "max_episode_steps: 500",
        "max_episode_steps: long",
        26,
        f"env_wrapper: {TIME_LIMIT}: max_episode_steps: expected a whole number, got 'long'",
    ),
    ("TimeLimit:\n        max_episode_steps: 500", "TimeLimit", 25, f"env_wrapper: {TIME_LIMIT}: missing 'max_episode_steps'"),
    (
        "        skip: 2",
        "",
        27,
        "env_wrapper: nothing follows 'rl_zoo3.wrappers.FrameSkip:': remove the colon, or indent its arguments below it",
    ),
    (
        "        skip: 2",
        "      skip: 2",
        27,
        "env_wrapper: expected one name with its arguments indented below it, "
        "got 2 keys: 'rl_zoo3.wrappers.FrameSkip', 'skip'",
    ),
    ("        skip: 2", "        2", 27, "env_wrapper: rl_zoo3.wrappers.FrameSkip: expected a mapping of arguments, got 2"),
    (
        "    - rl_zoo3.wrappers.FrameSkip:\n        skip: 2",
        "    - 5",
        27,
        "env_wrapper: expected a name or a list of names, got 5",
    ),
    (
        "    - rl_zoo3.wrappers.FrameSkip:\n        skip: 2",
        "    - - a.b",
        27,
        "env_wrapper: expected a name or a list of names, got ['a.b']",
    ),
    (
        "    - rl_zoo3.wrappers.FrameSkip:\n        skip: 2",
        "    - time_limi",
        27,
        "env_wrapper: no sb3_hrl.wrappers plug-in is named 'time_limi', did you mean 'time_limit'?",
    ),
    (
        "    - rl_zoo3.wrappers.FrameSkip:\n        skip: 2",
        "    - broken",
        27,
        "env_wrapper: the sb3_hrl.wrappers plug-in 'broken' of ? does not load from 'nowhere:X': "
        "ModuleNotFoundError: No module named 'nowhere'",
    ),
    (
        "frame_stack: 2",
        "vec_env_wrapper: natve",
        19,
        "vec_env_wrapper: no sb3_hrl.vec_envs plug-in is named 'natve', did you mean 'native'?",
    ),
    (
        "frame_stack: 2",
        "vec_env_wrapper: {native: {n_stac: 2}}",
        19,
        "vec_env_wrapper: native: unknown key 'n_stac', did you mean 'n_stack'?",
    ),
    # callbacks
    ("save_freq", "save_fre", 31, f"callback: {CHECKPOINT}: unknown key 'save_fre', did you mean 'save_freq'?"),
    (
        "    - stable_baselines3.common.callbacks.CheckpointCallback:",
        "    - CheckpointCallback:",
        30,
        "callback: 'CheckpointCallback' is not a dotted path such as 'package.module.Name'",
    ),
    (
        "    - stable_baselines3.common.callbacks.CheckpointCallback:",
        "    - gymnasium.Env:",
        30,
        "callback: expected a callback class, but 'gymnasium.Env' is <class 'gymnasium.core.Env'>",
    ),
    # the file as a whole
    ("gamma: 0.99", "n_steps: 3", 13, "'n_steps' is given twice, first in line 8"),
    (
        "        save_path: logs",
        "        save_path: logs\n        save_path: b",
        33,
        "'save_path' is given twice, first in line 32",
    ),
    ("forward_reward_weight: 1.0", "a: {b: 1, b: 2}", 21, "'b' is given twice, first in line 21"),
    ("[is_success]", "{a: 1}", 23, "monitor_kwargs: info_keywords: expected a list, got {'a': 1}"),
    ("learning_rate: 1e-3", "learning_rate: -1e-3", 11, "learning_rate: expected a number above 0, got -0.001"),
    ("learning_rate: 1e-3", "clip_range: 0", 12, "'clip_range' is given twice, first in line 11"),
    *(
        (
            "- rl_zoo3.wrappers.FrameSkip:\n        skip: 2",
            f"- sb3_hrl.wrappers.ActionHold: {{{arguments}}}",
            27,
            f"env_wrapper: {text}",
        )
        for arguments, text in (
            ("hold_seconds: null", "sb3_hrl.wrappers.ActionHold: hold_seconds: expected a number, got null"),
            ("hold_seconds: [0.1]", "sb3_hrl.wrappers.ActionHold: hold_seconds: expected a number, got [0.1]"),
            ("hold_seconds: true", "sb3_hrl.wrappers.ActionHold: hold_seconds: expected a number, got true"),
            ("hold_seconds: -0.1", "ActionHold: hold_seconds: expected seconds >= 0, got -0.1"),
            ("hold_seconds: .inf", "ActionHold: hold_seconds: expected seconds >= 0, got inf"),
            ("hold_seconds: 0.1, dt: 0", "ActionHold: dt: expected seconds > 0, got 0"),
            (
                "start_seconds: 0.1, end_seconds: 0, anneal_decisions: 0",
                "ActionHold: anneal_decisions: expected a whole number >= 1, got 0",
            ),
        )
    ),
    ("  gamma: 0.99", "\tgamma: 0.99", 13, "the line is indented with a tab: YAML wants spaces"),
    ("  gamma: 0.99", "   gamma: 0.99", 13, "column 9: a ':' is not expected here: check the indentation, or quote the text"),
    ("  gamma: 0.99", " gamma: 0.99", 13, "column 2: the indentation does not fit the lines above"),
    ("gamma: 0.99", "gamma 0.99", 14, "column 3: a ':' is missing after the key"),
    ("gamma: 0.99", "gamma: 'x", 13, "column 10: the quote is not closed"),
    ("[is_success]", "[is_success", 24, "column 14: a bracket is not closed, or a comma is missing"),
    ("gamma: 0.99", "gamma: *gamm", 13, "column 10: found undefined alias 'gamm'"),
    ("gamma: 0.99", "gamma: !number 3", 13, "unknown tag '!number': only plain YAML is read, no objects"),
    (
        "gamma: 0.99",
        "gamma: !!python/name:os.system ''",
        13,
        "unknown tag '!!python/name:os.system': only plain YAML is read, no objects",
    ),
    ("gamma: 0.99", "gamma: !!int x", 13, "column 10: cannot read 'x' as !!int"),
    ("gamma: 0.99", "gamma: 2026-99-99", 13, "column 10: cannot read '2026-99-99' as !!timestamp"),
    ("gamma: 0.99", "{{ gamma }}: 0.99", 13, "column 3: a key must be a plain name"),
    ("gamma: 0.99", "gamma: \x07", 13, "the character '\\x07' is not allowed in YAML"),
    ("Hopper-v5:\n", "Hopper-v5: 3\nother:\n", 5, "the section: expected a mapping of hyperparameters, got 3"),
    ("Hopper-v5:\n", "Hopper-v5:\nother:\n", 5, "the section: expected a mapping of hyperparameters, got null"),
]


@pytest.fixture(autouse=True)
def _plugins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Three made-up plug-ins, and an empty working directory."""
    values = {
        registry.WRAPPERS: {"time_limit": "gymnasium.wrappers:TimeLimit", "broken": "nowhere:X"},
        registry.VEC_ENVS: {"native": "stable_baselines3.common.vec_env:VecFrameStack"},
    }

    def plugins(group: str) -> dict[str, registry.Plugin]:
        return {name: registry.Plugin(group, name, (EntryPoint(name, value, group),)) for name, value in values[group].items()}

    monkeypatch.setattr(registry, "plugins", plugins)
    monkeypatch.chdir(tmp_path)


def check(
    text: str | bytes, env_id: str = ENV_ID, algorithm: type = PPO, name: str = "hyperparams.yml", **kwargs: Any
) -> None:
    Path(name).write_bytes(text if isinstance(text, bytes) else text.encode())
    check_config(name, env_id, algorithm, **{"is_atari": False, "overrides": None, **kwargs})


def complaint(*args: Any, **kwargs: Any) -> str:
    with pytest.raises(ConfigError) as error:
        check(*args, **kwargs)
    return str(error.value)


def test_good_configuration_passes() -> None:
    check(GOOD)
    check(GOOD, env_id="Ant-v5")  # by `default`
    check(GOOD.replace("default:", "other:"))


@pytest.mark.parametrize(("old", "new", "line", "text"), MUTATIONS, ids=[f"{m[2]}-{m[1].strip()[:40]}" for m in MUTATIONS])
def test_mutation(old: str, new: str, line: int, text: str) -> None:
    assert old in GOOD
    assert complaint(GOOD.replace(old, new, 1)) == f"{HEADLINE}hyperparams.yml:{line}: {text}"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("gamma: 0.99", "gamma: 1"),
        ("batch_size: 64", "batch_size: 64.0"),
        ("clip_range: lin_0.2", "clip_range: lin_2e-1"),
        ("clip_range: lin_0.2", "clip_range_vf: -1"),
        ("learning_rate: 1e-3", "learning_rate: !!float 1e-3"),
        ("learning_rate: 1e-3", "n_timesteps: 5"),  # an own key over a merged one
        ('"dict(norm_obs=True)"', "true"),
        ('"dict(norm_obs=True)"', "{norm_obs: false}"),
        ('"dict(activation_fn=nn.ReLU, net_arch=[64])"', "{net_arch: [64]}"),
        ('"dict(activation_fn=nn.ReLU, net_arch=[64])"', "null"),
        ("policy: MlpPolicy", "policy: stable_baselines3.ppo.MlpPolicy"),
        ("info_keywords: [is_success]", "allow_early_resets: false"),
        ("    - rl_zoo3.wrappers.FrameSkip:\n        skip: 2", "    - time_limit: {max_episode_steps: 5}"),
        ("    - rl_zoo3.wrappers.FrameSkip:\n        skip: 2", "    - rl_zoo3.wrappers.FrameSkip"),
        ("frame_stack: 2", "frame_stack:\n  vec_env_wrapper: {native: {n_stack: 2}}"),
        ("frame_stack: 2", "vec_env_wrapper:"),
        ("frame_stack: 2", "eval_env_kwargs: {a: 1}"),
        ("frame_stack: 2", "rollout_buffer_class: null"),
        ("forward_reward_weight: 1.0", "anything: &a [*a]"),  # an alias that contains itself
    ],
)
def test_good_variant_passes(old: str, new: str) -> None:
    assert old in GOOD
    check(GOOD.replace(old, new, 1))


@pytest.mark.parametrize(("name", "algorithm"), [("ppo", PPO), ("a2c", A2C), ("sac", SAC)])
def test_rl_zoo3_own_files_pass(name: str, algorithm: type, monkeypatch: pytest.MonkeyPatch) -> None:
    for module_name, attribute in (("minigrid.wrappers", "FlatObsWrapper"), ("ae.wrapper", "AutoencoderWrapper")):
        module = types.ModuleType(module_name)  # not installed here
        setattr(module, attribute, gym.Wrapper if attribute == "FlatObsWrapper" else lambda env, ae_path: env)
        monkeypatch.setitem(sys.modules, module_name.partition(".")[0], types.ModuleType("parent"))
        monkeypatch.setitem(sys.modules, module_name, module)
    monkeypatch.setattr(validation, "_load", cache(validation._load))  # 44 sections, one reading
    text = (Path(rl_zoo3.__file__).parent / "hyperparams" / f"{name}.yml").read_text()
    sections = yaml.load(text, yaml.CSafeLoader)
    # A true error of the zoo's file: gymnasium 1.x has no such module.
    wrong = {"donkey-generated-track-v0": "'gymnasium.wrappers.time_limit.TimeLimit' does not exist"}
    assert len(sections) > 20
    for section in sections:
        if section in wrong:
            assert wrong[section] in complaint(text, section, algorithm)
        else:
            check(text, section, algorithm)


def test_problems_come_together_in_the_order_of_the_lines() -> None:
    text = GOOD.replace("n_steps", "n_step").replace("64\n", "many\n").replace("MlpPolicy", "Mlp")
    assert complaint(text, overrides={"gamma": 1.5, "n_epoch": 3}) == (
        f"error: 5 problems in the hyperparameters of PPO for {ENV_ID}\n"
        f"hyperparams.yml:2: policy: {POLICIES} 'Mlp', did you mean 'MlpPolicy'?\n"
        "hyperparams.yml:8: unknown key 'n_step', did you mean 'n_steps'?\n"
        "hyperparams.yml:9: batch_size: expected a whole number, got 'many'\n"
        "-params: gamma: expected a number from 0 to 1, got 1.5\n"
        "-params: unknown key 'n_epoch', did you mean 'n_epochs'?"
    )


def test_overrides_win_over_the_file() -> None:
    bad = GOOD.replace("gamma: 0.99", "gamma: 7")
    check(bad, overrides={"gamma": 0.5, "rollout_buffer_class": object, "callback": CheckpointCallback(1, "logs")})
    assert complaint(GOOD, overrides={"env_wrapper": {"time_limit": {"max_steps": 1}}}, overrides_source="trial 3") == (
        f"{HEADLINE}trial 3: env_wrapper: time_limit: unknown key 'max_steps', did you mean 'max_episode_steps'?"
    )


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("", ": the file is empty"),
        ("# nothing\n", ": the file is empty"),
        ("- a\n", ": expected sections such as 'Hopper-v5:' at the top level, got ['a']"),
        ("word", ": expected sections such as 'Hopper-v5:' at the top level, got 'word'"),
        (b"a: 1\nb: \xff\n", ":2: the file is not UTF-8 text: byte 0xff"),
        ("a: 1\n---\nb: 2\n", ":2: column 1: expected a single document in the stream but found another document"),
        ("[" * 500, ": the YAML is nested too deeply, or an alias contains itself"),
        ("a: {}\nb: {}\n", ": no section 'Hopper-v5' and no 'default'; sections in the file: 'a', 'b'"),
        ("{}", ": no section 'Hopper-v5' and no 'default'; sections in the file: none"),
        (
            "Hopper-v4: {}\n",
            ": no section 'Hopper-v5' and no 'default'; sections in the file: 'Hopper-v4', did you mean 'Hopper-v4'?",
        ),
    ],
)
def test_file_without_a_section(content: str | bytes, text: str) -> None:
    assert complaint(content) == f"{HEADLINE}hyperparams.yml{text}"


def test_file_that_is_not_there() -> None:
    Path("hyperparams.yml").touch()
    Path("folder.yml").mkdir()
    for config, text in {
        "hyperparam.yml": "the file does not exist, did you mean 'hyperparams.yml'?",
        "no/where.yml": "the file does not exist",
        "folder.yml": "the file cannot be read: IsADirectoryError: [Errno 21] Is a directory: 'folder.yml'",
    }.items():
        with pytest.raises(ConfigError) as error:
            check_config(config, ENV_ID, PPO, is_atari=False, overrides=None)
        assert str(error.value) == f"{HEADLINE}{config}: {text}"


def test_atari_never_falls_back_on_default() -> None:
    check("atari: {policy: CnnPolicy, n_timesteps: 1e7}\ndefault: {}\n", "PongNoFrameskip-v4", is_atari=True)
    assert "no section 'PongNoFrameskip-v4' and no 'atari'" in complaint(GOOD, "PongNoFrameskip-v4", is_atari=True)


PYTHON = """\
import gymnasium as gym
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.callbacks import CheckpointCallback
hyperparams = {"Hopper-v5": dict(
    policy="MlpPolicy", n_timesteps="1e6", rollout_buffer_class=RolloutBuffer,
    env_wrapper=[{gym.wrappers.TimeLimit: dict(max_episode_steps=3)}], callback=CheckpointCallback(1, "logs"),
)}
"""


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("import gymnasium as gym", "import gymnasium as", ":1: running the file failed: SyntaxError: invalid syntax"),
        ("import gymnasium", "1 / 0\nimport gymnasium", ":1: running the file failed: ZeroDivisionError: division by zero"),
        ("import gymnasium", "exit(3)\nimport gymnasium", ":1: running the file failed: SystemExit: 3"),
        ("hyperparams", "hyperparam", ": the file does not define 'hyperparams', did you mean 'hyperparam'?"),
        ('policy="MlpPolicy"', "policy=object", f": policy: {POLICIES} <class 'object'>"),
        (
            '"1e6"',
            "1, learning_rate=abs",
            ": learning_rate: expected a number or 'lin_<number>', got <built-in function abs> "
            "(leave the key out for the default)",
        ),
        (
            'CheckpointCallback(1, "logs")',
            "CheckpointCallback",
            f": callback: expected a dotted path or a list of these, got <class '{CHECKPOINT}'>",
        ),
    ],
)
def test_python_file(old: str, new: str, text: str) -> None:
    check(PYTHON, name="params.py")
    assert complaint(PYTHON.replace(old, new, 1), name="params.py") == f"{HEADLINE}params.py{text}"


def test_python_package(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("some_params")
    hyperparams = {ENV_ID: {"policy": "MlpPolicy", "n_timesteps": "1e6"}}
    module.hyperparams = copy.deepcopy(hyperparams)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "some_params", module)
    check_config("some_params", ENV_ID, PPO, is_atari=False, overrides={"gamma": 1})
    assert module.hyperparams == hyperparams
    assert complaint("x", name="no_such_params") == (
        f"{HEADLINE}no_such_params: not a Python package with 'hyperparams': "
        "ModuleNotFoundError: No module named 'no_such_params'; a file must end in .yml, .yaml or .py"
    )


SAC_GOOD = """\
Hopper-v5:
  policy: MlpPolicy
  n_timesteps: 1000
  noise_type: normal
  noise_std: 0.1
  train_freq: [1, episode]
  replay_buffer_class: HerReplayBuffer
  replay_buffer_kwargs: "dict(n_sampled_goal=4)"
"""


@pytest.mark.parametrize(
    ("old", "new", "line", "text"),
    [
        ("  noise_std: 0.1\n", "", 1, "'noise_type' and 'noise_std' go together, got only 'noise_type'"),
        ("normal", "white", 4, "noise_type: expected 'normal' or 'ornstein-uhlenbeck', got 'white'"),
        ("normal", "null", 4, "noise_type: expected text, got null"),
        ("train_freq: [1, episode]", "keep_checkpoints: 2", 6, "unknown key 'keep_checkpoints'"),
        ("0.1", "big", 5, "noise_std: expected a number, got 'big'"),
        ("[1, episode]", "[1, 2]", 6, "train_freq: expected a whole number or a list, got [1, 2]"),
        ("[1, episode]", "[1]", 6, "train_freq: expected a whole number or a list, got [1]"),
        (
            "HerReplayBuffer",
            "HerReplayBufer",
            7,
            "replay_buffer_class: the Python code 'HerReplayBufer' fails: "
            "NameError: name 'HerReplayBufer' is not defined, did you mean 'HerReplayBuffer'?",
        ),
        ("HerReplayBuffer", "'3'", 7, "replay_buffer_class: expected a class or null, got '3', which gives 3"),
        (
            "train_freq: [1, episode]",
            "action_noise: normal",
            6,
            "action_noise: expected a ActionNoise object or null, got 'normal'; "
            "it cannot be set from YAML: leave the key out, or use a .py file",
        ),
    ],
)
def test_off_policy_keys(old: str, new: str, line: int, text: str) -> None:
    check(SAC_GOOD, algorithm=SAC)
    message = complaint(SAC_GOOD.replace(old, new, 1), algorithm=SAC)
    assert message == f"{HEADLINE.replace('PPO', 'SAC')}hyperparams.yml:{line}: {text}"


class Child(PPO):
    """A constructor with ``**kwargs``, annotations in strings (one does not resolve), and one that is no type."""

    def __init__(
        self,
        *args: Any,
        n_muscles: "int | None" = None,
        rate: "float | Schedule" = 0.1,
        mode: "Literal['a', 'b']" = "a",  # type: ignore[name-defined]  # noqa: F821
        sizes: tuple[int, ...] = (),
        gamma: float | Schedule = 0.9,
        n_epochs: [int] = 1,  # type: ignore
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)


def test_constructor_with_kwargs_takes_the_parents_too() -> None:
    good = GOOD + "  n_muscles: 1e1\n  rate: lin_1\n  mode: 3\n  sizes: [1, 2]\n"
    check(good, algorithm=Child)
    check(good.replace("lin_1", "1e-3"), algorithm=Child)
    check(good.replace("gamma: 0.99", "gamma: lin_0.9").replace("n_epochs: 10", "n_epochs: any"), algorithm=Child)
    for old, new, text in (
        ("n_muscles", "n_muscle", "unknown key 'n_muscle', did you mean 'n_muscles'?"),
        ("n_steps", "n_step", "unknown key 'n_step', did you mean 'n_steps'?"),
        ("1e1", "some", "n_muscles: expected a whole number or null, got 'some'"),
        ("lin_1", "fast", "rate: expected a number or 'lin_<number>', got 'fast'"),
        ("[1, 2]", "[1, x]", "sizes: expected a list, got [1, 'x']"),
    ):
        assert text in complaint(good.replace(old, new, 1), algorithm=Child)
    assert normalise({"n_muscles": "1e1", "n_steps": 8.0}, Child) == {"n_muscles": 10, "n_steps": 8}


@pytest.mark.parametrize("text", ["1e-3", "1E6", "+1e-3", "-1e3", "1.e3", "1.5e3", ".5e3", "2e+10"])
def test_number_like_strings_become_floats(text: str) -> None:
    assert yaml.safe_load(text) == text  # else there would be nothing to do
    nested = {"ent_coef": text, "env_kwargs": {"a": [text, {"b": text}]}, "policy_kwargs": f"dict(a={text})"}
    value = float(text)
    assert normalise(nested, PPO) == {
        "ent_coef": value,
        "env_kwargs": {"a": [value, {"b": value}]},
        "policy_kwargs": f"dict(a={text})",
    }
    assert nested["ent_coef"] == text


@pytest.mark.parametrize("text", ["64", "0.5", "lin_1e-3", "e3", "1e", "1e3x", " 1e3", "1_0e3", "nan", "inf", "0x1e3", ""])
def test_other_strings_stay(text: str) -> None:
    assert normalise({"ent_coef": text}, PPO) == {"ent_coef": text}


def test_whole_floats_become_ints_where_an_int_is_wanted() -> None:
    given = {
        "n_timesteps": "1e6",
        "n_envs": 8.0,
        "n_steps": "1e3",
        "batch_size": 64.5,
        "frame_stack": 4.0,
        "gamma": 1.0,
        "target_kl": "1e0",
        "env_wrapper": [{"time_limit": {"max_episode_steps": "1e3"}}, {"broken": {"a": 1.0}}, "x"],
        "callback": {CHECKPOINT: {"save_freq": 1e4, "save_path": "1"}},
    }
    result = normalise(given, PPO)
    assert repr(result) == repr(
        {
            "n_timesteps": 1000000,
            "n_envs": 8,
            "n_steps": 1000,
            "batch_size": 64.5,
            "frame_stack": 4,
            "gamma": 1.0,
            "target_kl": 1.0,
            "env_wrapper": [{"time_limit": {"max_episode_steps": 1000}}, {"broken": {"a": 1.0}}, "x"],
            "callback": {CHECKPOINT: {"save_freq": 10000, "save_path": "1"}},
        }
    )


def test_zoo_takes_what_normalise_gives_and_not_what_the_file_has() -> None:
    from rl_zoo3.exp_manager import ExperimentManager

    with pytest.raises(ValueError, match="not enough values to unpack"):
        ExperimentManager._preprocess_schedules({"learning_rate": "1e-3"})
    schedules = ExperimentManager._preprocess_schedules(normalise({"learning_rate": "1e-3"}, PPO))
    assert schedules["learning_rate"](1.0) == 1e-3


def test_aliases_that_multiply_take_no_time() -> None:
    laughs = "a0: &a0 [lol]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 30))
    check(laughs + GOOD.replace("forward_reward_weight: 1.0", "a: *a29"))
    assert "expected a number" in complaint(laughs + GOOD.replace("gamma: 0.99", "gamma: *a29"))


# --- nothing but ConfigError ------------------------------------------------------------------------------------------

FUZZ = settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.dates() | st.binary(max_size=4)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(SCALARS, inner, max_size=3), max_leaves=6
)
KEYS = ["policy", "n_timesteps", "n_envs", "gamma", "learning_rate", "clip_range_vf", "use_sde", "normalize", "policy_kwargs"]
KEYS += ["monitor_kwargs", "env_kwargs", "env_wrapper", "vec_env_wrapper", "callback", "frame_stack", "rollout_buffer_class"]


def only_config_errors(text: str | bytes) -> None:
    try:
        check(text)
    except ConfigError as error:
        headline, *lines = str(error).split("\n")
        assert headline.startswith(f"error: {len(lines)} problem")
        assert all(line.startswith("hyperparams.yml:") for line in lines)


@FUZZ
@given(st.text() | st.binary())
def test_any_content(content: str | bytes) -> None:
    only_config_errors(content if isinstance(content, bytes) else content.encode(errors="surrogatepass"))


@FUZZ
@given(st.integers(0, len(GOOD)), st.integers(0, 12), st.text("\t \n:-{}[]'\"#&*!|>%@`,?ab1.e<", max_size=4))
def test_any_edit_of_a_good_file(start: int, n_removed: int, inserted: str) -> None:
    only_config_errors(GOOD[:start] + inserted + GOOD[start + n_removed :])


@FUZZ
@given(st.dictionaries(st.sampled_from(KEYS) | SCALARS, VALUES, max_size=8) | VALUES)
def test_any_section(section: Any) -> None:
    only_config_errors(yaml.dump({ENV_ID: section}, allow_unicode=True))


@FUZZ
@given(st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=4), VALUES, max_size=8))
def test_normalise_is_idempotent_and_leaves_its_input(hyperparams: dict[str, Any]) -> None:
    before = repr(hyperparams)
    once = normalise(hyperparams, PPO)
    assert repr(hyperparams) == before
    assert repr(normalise(once, PPO)) == repr(once)
