"""IMPALA in the zoo's commands: a plug-in like a stranger's."""

from pathlib import Path

import optuna
import pytest
import yaml

from sb3_hrl.registry import get_spec
from sb3_hrl.zoo.validation import check_config, find_config
from sb3_hrl_plugins.impala import IMPALA
from tests.zoo.conftest import run_zoo

CARTPOLE = ["--algo", "impala", "--env", "CartPole-v1"]


def test_train_enjoy_and_continue(tmp_path: Path) -> None:
    options = ["-n", "512", "--eval-freq", "256", "--eval-episodes", "2", "--save-freq", "256", "--seed", "3"]
    process = run_zoo("train", *CARTPOLE, *options, "-params", "batch_size:64", "ent_coef:'lin_0.02'", cwd=tmp_path)
    assert "impala.yml" in process.stdout
    for key in ("vtrace_rho_mean", "ent_coef", "value_loss", "policy_loss", "explained_variance"):
        assert key in process.stdout, key
    run = tmp_path / "logs/impala/CartPole-v1_1"
    model = IMPALA.load(run / "CartPole-v1.zip")
    assert (model.num_timesteps, model.batch_size, model.ent_coef) == (512, 64, "lin_0.02")
    assert model.n_envs == 8
    enjoyed = run_zoo("enjoy", *CARTPOLE, "-f", "logs", "--no-render", "-n", "100", "--load-best", cwd=tmp_path)
    assert "Loading logs/impala/CartPole-v1_1/best_model.zip" in enjoyed.stdout
    run_zoo("train", *CARTPOLE, "-n", "640", "-i", str(run / "CartPole-v1.zip"), "--eval-freq", "-1", cwd=tmp_path)
    again = IMPALA.load(tmp_path / "logs/impala/CartPole-v1_2/CartPole-v1.zip")
    assert again._n_updates == model._n_updates + 1


def test_train_with_actors(tmp_path: Path) -> None:
    """Evaluation and files are those of any run."""
    options = ["-n", "512", "--eval-freq", "256", "--eval-episodes", "1", "--seed", "3", "-params", "n_actors:2"]
    process = run_zoo("train", *CARTPOLE, *options, cwd=tmp_path)
    for key in ("policy_lag", "vtrace_rho_mean", "bottleneck", "actor_restarts"):
        assert key in process.stdout, key
    run = tmp_path / "logs/impala/CartPole-v1_1"
    assert IMPALA.load(run / "CartPole-v1.zip").num_timesteps == 512
    assert len(list(run.glob("*.monitor.csv"))) == 8
    process = run_zoo("train", *CARTPOLE, "-params", "n_actors:3", cwd=tmp_path, returncode=2)
    assert "8 environments cannot be shared out evenly among 3 actors" in process.stderr


def test_optimize_and_load_a_trial(tmp_path: Path) -> None:
    study_options = ["--storage", "sqlite:///study.db", "--study-name", "s"]
    options = ["-n", "600", "-optimize", "--n-trials", "2", "--n-evaluations", "1", "--no-optim-plots", "--eval-episodes", "1"]
    run_zoo("train", *CARTPOLE, *options, "--n-startup-trials", "2", *study_options, "-params", "n_envs:2", cwd=tmp_path)
    study = optuna.load_study(study_name="s", storage=f"sqlite:///{tmp_path / 'study.db'}")
    assert [trial.state.name for trial in study.trials] == ["COMPLETE", "COMPLETE"]
    run_zoo("train", *CARTPOLE, "-n", "16", *study_options, "--trial-id", "1", "--eval-freq", "-1", cwd=tmp_path)
    model = IMPALA.load(max((tmp_path / "logs/impala").glob("CartPole-v1_*")) / "CartPole-v1.zip")
    trial = study.trials[1]
    assert (model.gamma, model.n_steps) == (trial.user_attrs["gamma"], trial.user_attrs["n_steps"])


@pytest.mark.parametrize(
    ("params", "message"),
    [
        (["rho_bar:-1.0"], "rho_bar: expected a number > 0, got -1.0"),
        (["n_steps:256", "batch_size:128"], "batch_size: expected at least one unroll of n_steps 256, or null"),
        (["n_actors:2", "n_envs:8", "rollout:'native'"], "rollout: 'native' is not possible with n_actors=2"),
    ],
)
def test_a_wrong_argument_ends_before_anything_exists(tmp_path: Path, params: list[str], message: str) -> None:
    process = run_zoo("train", *CARTPOLE, "-params", *params, cwd=tmp_path, returncode=2)
    assert message in process.stderr
    assert list(tmp_path.iterdir()) == []


# --- presets

PRESETS = get_spec("impala").hyperparams_path.parent / "presets"
IMPALA_PRESETS = sorted(path.stem for path in PRESETS.glob("impala_*.yml"))


@pytest.mark.parametrize("name", IMPALA_PRESETS)
def test_a_preset_is_found_by_name_and_is_right(name: str) -> None:
    path = find_config(name, PRESETS)
    check_config(path, "procgen-coinrun-v0", IMPALA, is_atari=False, overrides=None)
    section = yaml.safe_load(Path(path).read_text())["default"]
    assert ("n_actors" in section) == ("parallel" in name)
    assert section["n_envs"] % section.get("n_actors", 1) == 0


def test_the_seeds_have_their_presets() -> None:
    machines = ("", "_ryzen7", "_highend")
    assert sorted(f"impala_{mode}{machine}" for mode in ("sequential", "parallel") for machine in machines) == IMPALA_PRESETS
