"""
RLlib's IMPALA on Procgen: its samples per second, in an environment of its own (``benchmarks/procgen/peers/run.sh rllib``).

The Nature network, 32 environments in two runners, unrolls of 128 steps, minibatches of 1024: as ``benchmarks.procgen.speed``
has it for ours.
"""

import json
import time

import ray
from game import ProcgenGame, read_arguments
from ray.rllib.algorithms.impala import IMPALAConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.tune.registry import register_env


def main() -> None:
    """Train for a while, and say how fast it was."""
    args = read_arguments()
    ray.init(num_cpus=args.n_runners + 1, include_dashboard=False, log_to_driver=False)
    register_env("procgen", lambda config: ProcgenGame(config["game"], is_float=True))
    network = DefaultModelConfig(
        conv_filters=[[32, 8, 4], [64, 4, 2], [64, 3, 1]], conv_activation="relu", head_fcnet_hiddens=[512]
    )
    config = (
        IMPALAConfig()
        .environment("procgen", env_config={"game": args.game})
        .env_runners(
            num_env_runners=args.n_runners,
            num_envs_per_env_runner=args.n_envs // args.n_runners,
            rollout_fragment_length=128,
        )
        .learners(num_learners=0)
        .training(train_batch_size_per_learner=1024, lr=5e-4, gamma=0.999, entropy_coeff=0.01)
        .rl_module(model_config=network)
    )
    algorithm = config.build_algo()
    begin, n_begin, n_steps = None, 0, 0
    start = time.perf_counter()
    while begin is None or time.perf_counter() - begin < args.seconds:
        result = algorithm.train()
        n_steps = int(result.get("learners", {}).get("__all_modules__", {}).get("num_env_steps_trained_lifetime", n_steps))
        print(f"{time.perf_counter() - start:.0f} s: {n_steps} steps", flush=True)
        if begin is None and n_steps > 0 and time.perf_counter() - start > args.warmup_seconds:
            begin, n_begin = time.perf_counter(), n_steps
    rate = (n_steps - n_begin) / (time.perf_counter() - begin)
    print(json.dumps({"peer": "rllib_impala", "version": ray.__version__, "steps_per_second": rate}))
    algorithm.stop()
    ray.shutdown()


if __name__ == "__main__":
    main()
