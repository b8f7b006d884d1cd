"""Optuna search spaces. A sampler suggests raw parameters and returns what its converter makes of them."""

import math
from typing import TYPE_CHECKING, Any

from torch import nn

if TYPE_CHECKING:
    import optuna

NET_ARCHS = {"tiny": [64], "small": [64, 64], "medium": [256, 256]}
ACTIVATIONS: dict[str, type[nn.Module]] = {"tanh": nn.Tanh, "relu": nn.ReLU, "elu": nn.ELU}

# Under this name a trial finds the `muscle_kwargs` of the YAML file, if it has any: then it varies them, too.
MUSCLE_KWARGS = "muscle_kwargs"

# log2 of the rollout's size n_steps * n_envs. Its lower end is the largest minibatch, so that every minibatch fits.
ROLLOUT_SIZE_POW = (9, 14)
BATCH_SIZE_POW = (5, 9)


def sample_hppo_params(trial: "optuna.Trial", n_actions: int, n_envs: int, additional_args: dict[str, Any]) -> dict[str, Any]:
    """
    Suggest hyperparameters for HPPO.

    :param trial: the trial that suggests
    :param n_actions: size of the action space (not used)
    :param n_envs: number of environments: a rollout has ``n_steps * n_envs`` transitions
    :param additional_args: what the zoo adds for other algorithms (not used)
    :return: keyword arguments of ``HPPO``
    """
    n_envs_pow = int(math.log2(n_envs))
    low, high = (max(1, pow_ - n_envs_pow) for pow_ in ROLLOUT_SIZE_POW)
    params = {
        "n_steps_pow": trial.suggest_int("n_steps_pow", low, high),
        "batch_size_pow": trial.suggest_int("batch_size_pow", *BATCH_SIZE_POW),
        "n_epochs": trial.suggest_int("n_epochs", 2, 20),
        "one_minus_gamma": trial.suggest_float("one_minus_gamma", 1e-4, 0.03, log=True),
        "one_minus_gae_lambda": trial.suggest_float("one_minus_gae_lambda", 1e-3, 0.2, log=True),
        "learning_rate": trial.suggest_float("learning_rate", 1e-5, 2e-3, log=True),
        "ent_coef": trial.suggest_float("ent_coef", 1e-8, 0.1, log=True),
        "clip_range": trial.suggest_float("clip_range", 0.1, 0.4),
        "max_grad_norm": trial.suggest_float("max_grad_norm", 0.3, 2.0),
        "log_std_init": trial.suggest_float("log_std_init", -2.0, 0.5),
        "net_arch": trial.suggest_categorical("net_arch", list(NET_ARCHS)),
        "activation_fn": trial.suggest_categorical("activation_fn", list(ACTIVATIONS)),
    }
    muscle_kwargs = trial.user_attrs.get(MUSCLE_KWARGS)
    if muscle_kwargs is not None:
        params |= {
            "muscle_learning_rate": trial.suggest_float("muscle_learning_rate", 1e-5, 3e-3, log=True),
            "muscle_n_epochs": trial.suggest_int("muscle_n_epochs", 1, 10),
            "muscle_batch_size_pow": trial.suggest_int("muscle_batch_size_pow", 6, 10),
            "muscle_effort_weight": trial.suggest_float("muscle_effort_weight", 1e-3, 0.2, log=True),
            "muscle_width_pow": trial.suggest_int("muscle_width_pow", 5, 8),
        }
    hyperparams = convert_hppo_params(params)
    if muscle_kwargs is not None:
        hyperparams[MUSCLE_KWARGS] = {**muscle_kwargs, **hyperparams[MUSCLE_KWARGS]}
    for name in ("n_steps", "batch_size", "gamma", "gae_lambda"):
        trial.set_user_attr(name, hyperparams[name])
    return hyperparams


def convert_hppo_params(params: dict[str, Any]) -> dict[str, Any]:
    """
    Turn the raw parameters of a trial into what the sampler returned for it.

    :param params: ``trial.params``
    :return: keyword arguments of ``HPPO``
    """
    raw = dict(params)
    net_arch = NET_ARCHS[raw.pop("net_arch")]
    muscles: dict[str, Any] = {}
    if "muscle_learning_rate" in raw:
        muscles = {
            "learning_rate": raw.pop("muscle_learning_rate"),
            "n_epochs": raw.pop("muscle_n_epochs"),
            "batch_size": 2 ** raw.pop("muscle_batch_size_pow"),
            "effort_weight": raw.pop("muscle_effort_weight"),
            "hidden": [2 ** raw.pop("muscle_width_pow")] * 2,
        }
    return {
        **({"muscle_kwargs": muscles} if muscles else {}),
        "n_steps": 2 ** raw.pop("n_steps_pow"),
        "batch_size": 2 ** raw.pop("batch_size_pow"),
        "gamma": 1 - raw.pop("one_minus_gamma"),
        "gae_lambda": 1 - raw.pop("one_minus_gae_lambda"),
        "log_std": raw.pop("log_std_init"),
        "policy_kwargs": {
            "net_arch": {"pi": list(net_arch), "vf": list(net_arch)},
            "activation_fn": ACTIVATIONS[raw.pop("activation_fn")],
        },
        **raw,
    }
