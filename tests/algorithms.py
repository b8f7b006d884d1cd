"""One row for each algorithm of ours: it inherits every contract test."""

from typing import Any, NamedTuple

from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm

from sb3_hrl.hppo import HPPO
from sb3_hrl_plugins.impala import IMPALA


class AlgorithmRow(NamedTuple):
    """
    :param name: its name in the registry
    :param algorithm: its class
    :param env_id: a small environment
    :param kwargs: constructor arguments that make one update quick
    """

    name: str
    algorithm: type[OnPolicyAlgorithm]
    env_id: str
    kwargs: dict[str, Any]


ALGORITHMS = [
    AlgorithmRow("hppo", HPPO, "Pendulum-v1", {"n_steps": 64, "batch_size": 32, "n_epochs": 2}),
    AlgorithmRow("impala", IMPALA, "Pendulum-v1", {"n_steps": 32, "n_epochs": 2}),
]
