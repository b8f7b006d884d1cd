"""Optuna's search space of IMPALA. The sampler suggests raw parameters and returns what its converter makes of them."""

import math
from typing import TYPE_CHECKING, Any

from sb3_hrl.zoo.samplers import ACTIVATIONS, NET_ARCHS

if TYPE_CHECKING:
    import optuna


def sample_impala_params(
    trial: "optuna.Trial", n_actions: int, n_envs: int, additional_args: dict[str, Any]
) -> dict[str, Any]:
    """
    Suggest hyperparameters for IMPALA.

    :param trial: the trial that suggests
    :param n_actions: size of the action space (not used)
    :param n_envs: number of environments: a minibatch has the unrolls of some of them
    :param additional_args: what the zoo adds for other algorithms (not used)
    :return: keyword arguments of ``IMPALA``
    """
    params = {
        "n_steps_pow": trial.suggest_int("n_steps_pow", 3, 8),
        "n_epochs": trial.suggest_int("n_epochs", 1, 4),
        "one_minus_gamma": trial.suggest_float("one_minus_gamma", 1e-4, 0.03, log=True),
        "one_minus_gae_lambda": trial.suggest_float("one_minus_gae_lambda", 1e-4, 0.2, log=True),
        "learning_rate": trial.suggest_float("learning_rate", 1e-5, 5e-3, log=True),
        "ent_coef": trial.suggest_float("ent_coef", 1e-8, 0.1, log=True),
        "max_grad_norm": trial.suggest_float("max_grad_norm", 0.05, 5.0, log=True),
        "normalize_advantage": trial.suggest_categorical("normalize_advantage", [False, True]),
        "log_std_init": trial.suggest_float("log_std_init", -2.0, 0.5),
        "net_arch": trial.suggest_categorical("net_arch", list(NET_ARCHS)),
        "activation_fn": trial.suggest_categorical("activation_fn", list(ACTIVATIONS)),
    }
    if n_envs > 1:
        params["batch_envs_pow"] = trial.suggest_int("batch_envs_pow", 0, int(math.log2(n_envs)))
    hyperparams = convert_impala_params(params)
    for name in ("n_steps", "gamma", "gae_lambda"):
        trial.set_user_attr(name, hyperparams[name])
    return hyperparams


def convert_impala_params(params: dict[str, Any]) -> dict[str, Any]:
    """
    Turn the raw parameters of a trial into what the sampler returned for it.

    :param params: ``trial.params``
    :return: keyword arguments of ``IMPALA``
    """
    raw = dict(params)
    n_steps, net_arch = 2 ** raw.pop("n_steps_pow"), NET_ARCHS[raw.pop("net_arch")]
    batch = {"batch_size": n_steps * 2 ** raw.pop("batch_envs_pow")} if "batch_envs_pow" in raw else {}
    return {
        "n_steps": n_steps,
        **batch,
        "gamma": 1 - raw.pop("one_minus_gamma"),
        "gae_lambda": 1 - raw.pop("one_minus_gae_lambda"),
        "policy_kwargs": {
            "log_std_init": raw.pop("log_std_init"),
            "net_arch": {"pi": list(net_arch), "vf": list(net_arch)},
            "activation_fn": ACTIVATIONS[raw.pop("activation_fn")],
        },
        **raw,
    }
