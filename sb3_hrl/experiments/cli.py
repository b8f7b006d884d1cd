"""``sb3-hrl``: the commands that the zoo does not have."""

import argparse
import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """
    :param argv: the arguments; those of the process by default
    :return: the exit code
    """
    parser = argparse.ArgumentParser(prog="sb3-hrl", description="Plug-ins for Stable-Baselines3 and rl-zoo3.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    commands.add_parser("plugins", help="list what is registered, from where, and whether it loads")

    muscles = commands.add_parser("muscles", help="what the muscles of a MuJoCo model can do, and whether they can be driven")
    muscles.add_argument("model", metavar="MODEL.xml", help="an MJCF file")
    muscles.add_argument("--joints", nargs="+", default=[], metavar="NAME", help="only these joints (default: all spanned)")

    quickstart = commands.add_parser("quickstart", help="train the default agent, and show it before and after")
    quickstart.add_argument(
        "--n-timesteps", type=_positive, default=None, help="decisions to train for (default: about two minutes)"
    )
    quickstart.add_argument(
        "--n-episodes", type=_positive, default=20, help="episodes to evaluate before and after (default: 20)"
    )
    quickstart.add_argument("--seed", type=int, default=1, help="seed of the training and of both evaluations (default: 1)")
    quickstart.add_argument("-f", "--log-folder", default="logs", help="where the run goes (default: logs)")

    bench = commands.add_parser("bench", help="measure this machine").add_subparsers(
        dest="bench", required=True, metavar="WHAT"
    )
    rollout = bench.add_parser("rollout", help="rollouts of SB3 and ours, side by side")
    rollout.add_argument("--env", default="HalfCheetah-v5", help="an environment with a native form (default: HalfCheetah-v5)")
    rollout.add_argument("--n-envs", type=_positive, default=16, help="number of environments (default: 16)")
    rollout.add_argument("--n-steps", type=_positive, default=128, help="steps of each in a rollout (default: 128)")
    rollout.add_argument(
        "--net-arch", type=_positive, nargs="+", default=[64, 64], help="layers of the policy (default: 64 64)"
    )
    rollout.add_argument("--rounds", type=_positive, default=7, help="rollouts of each contestant (default: 7)")
    rollout.add_argument("--warmup", type=int, default=1, help="rounds that do not count (default: 1)")
    rollout.add_argument("--total-timesteps", type=_positive, default=None, help="instead of --rounds: at least so many steps")
    rollout.add_argument("--only", nargs="+", default=[], metavar="NAME", help="only these contestants")
    rollout.add_argument("--json", default=None, metavar="FILE", help="write the figures to FILE")

    args = parser.parse_args(argv)
    # Each command is imported when it is called: `plugins` must work where torch does not.
    if args.command == "plugins":
        from sb3_hrl.experiments.plugins import list_plugins

        return list_plugins()
    if args.command == "muscles":
        from sb3_hrl.experiments.muscles import report_muscles

        return report_muscles(args.model, args.joints)
    if args.command == "bench":
        from sb3_hrl.experiments.bench import CONTESTANTS, Setting, bench_rollout

        unknown = [name for name in args.only if name not in CONTESTANTS]
        if unknown:
            parser.error(f"--only: no contestant is named {unknown[0]!r}; there are {', '.join(CONTESTANTS)}")
        n_rollout = args.n_envs * args.n_steps
        n_rounds = args.rounds if args.total_timesteps is None else -(-args.total_timesteps // n_rollout)
        setting = Setting(args.env, args.n_envs, args.n_steps, tuple(args.net_arch), n_rounds)
        return bench_rollout(setting, args.only, args.warmup, args.json)
    from sb3_hrl.experiments.quickstart import run_quickstart

    return run_quickstart(args.log_folder, args.seed, args.n_episodes, args.n_timesteps)


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number >= 1, got {text}")
    return number


if __name__ == "__main__":
    sys.exit(main())
