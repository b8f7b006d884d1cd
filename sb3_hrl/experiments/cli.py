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

    quickstart = commands.add_parser("quickstart", help="train the default agent, and show it before and after")
    quickstart.add_argument(
        "--n-timesteps", type=_positive, default=None, help="decisions to train for (default: about two minutes)"
    )
    quickstart.add_argument(
        "--n-episodes", type=_positive, default=20, help="episodes to evaluate before and after (default: 20)"
    )
    quickstart.add_argument("--seed", type=int, default=1, help="seed of the training and of both evaluations (default: 1)")
    quickstart.add_argument("-f", "--log-folder", default="logs", help="where the run goes (default: logs)")

    args = parser.parse_args(argv)
    # Each command is imported when it is called: `plugins` must work where torch does not.
    if args.command == "plugins":
        from sb3_hrl.experiments.plugins import list_plugins

        return list_plugins()
    from sb3_hrl.experiments.quickstart import run_quickstart

    return run_quickstart(args.log_folder, args.seed, args.n_episodes, args.n_timesteps)


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number >= 1, got {text}")
    return number


if __name__ == "__main__":
    sys.exit(main())
