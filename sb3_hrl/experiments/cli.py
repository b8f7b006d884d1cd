"""``sb3-hrl``: the commands that the zoo does not have."""

import argparse
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

from sb3_hrl.errors import MissingExtraError, UsageError
from sb3_hrl.experiments.options import count, positive

# Commands that are modules of that name: ``add_arguments`` says what they take, ``run`` does it.
WITH_MODULE = {
    "train": "train for a time or for steps, any algorithm on any environment, with metrics and a summary",
    "evaluate": "play episodes with a run's model, or with any saved model",
    "compare": "tables and plots of several runs side by side",
    "doctor": "what works on this machine, and what to do about the rest",
}


def main(argv: Sequence[str] | None = None) -> int:
    """
    :param argv: the arguments; those of the process by default
    :return: the exit code
    """
    parser = argparse.ArgumentParser(
        prog="sb3-hrl", description="Plug-ins for Stable-Baselines3 and rl-zoo3.", allow_abbrev=False
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    commands.add_parser("plugins", help="list what is registered, from where, and whether it loads")

    muscles = commands.add_parser("muscles", help="what the muscles of a MuJoCo model can do, and whether they can be driven")
    muscles.add_argument("model", metavar="MODEL.xml", help="an MJCF file, or myo_sim:NAME")
    muscles.add_argument("--joints", nargs="+", default=[], metavar="NAME", help="only these joints (default: all spanned)")

    quickstart = commands.add_parser("quickstart", help="train the default agent, and show it before and after")
    quickstart.add_argument(
        "--n-timesteps", type=positive, default=None, help="decisions to train for (default: about a minute)"
    )
    quickstart.add_argument(
        "--n-episodes", type=positive, default=20, help="episodes to evaluate before and after (default: 20)"
    )
    quickstart.add_argument("--seed", type=int, default=1, help="seed of the training and of both evaluations (default: 1)")
    quickstart.add_argument("-f", "--log-folder", default="logs", help="where the run goes (default: logs)")

    bench = commands.add_parser("bench", help="measure this machine").add_subparsers(
        dest="bench", required=True, metavar="WHAT"
    )
    for name, text, has_learning in (
        ("rollout", "rollouts of SB3 and ours, side by side", False),
        ("train", "whole iterations of SB3's PPO and of HPPO, side by side", True),
        ("num-envs", "how training scales with the number of environments, and which number to take", True),
    ):
        _add_bench_options(bench.add_parser(name, help=text, description=text), name, has_learning)

    text = "measure how many environments and threads are fastest here, and write a preset with them"
    preset = bench.add_parser("preset", help=text, description=text)
    preset.add_argument("--algo", default="hppo", help="what trains: hppo, impala (default: hppo)")
    preset.add_argument("--env", default="procgen-coinrun-v0", help="what is trained (default: procgen-coinrun-v0)")
    preset.add_argument("-conf", "--conf-file", default=None, help="hyperparameters to begin with (default: the algorithm's)")
    preset.add_argument(
        "-o", "--output", default="my_machine.yml", metavar="FILE", help="the preset (default: my_machine.yml)"
    )
    text = "numbers of environments (default: 16 32 64 128, with actors 4 8 16 32 for each)"
    preset.add_argument("--n-envs-list", type=positive, nargs="+", default=None, metavar="N", help=text)
    text = "numbers of torch's threads (default: 1, and as many as there are cores)"
    preset.add_argument("--n-threads-list", type=positive, nargs="+", default=None, metavar="N", help=text)
    preset.add_argument("--rounds", type=positive, default=3, help="iterations of each that count (default: 3)")

    for name, text in WITH_MODULE.items():
        commands.add_parser(name, help=text, add_help=False)

    args, rest = parser.parse_known_args(argv)
    # Each command is imported when it is called: `plugins` must work where torch does not.
    if args.command in WITH_MODULE:
        return _run_module(args.command, rest)
    if rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    if args.command == "plugins":
        from sb3_hrl.experiments.plugins import list_plugins

        return list_plugins()
    if args.command == "muscles":
        from sb3_hrl.experiments.muscles import report_muscles

        return report_muscles(args.model, args.joints)
    if args.command == "bench":
        return _run_bench(parser, args)
    from sb3_hrl.experiments.quickstart import run_quickstart

    return run_quickstart(args.log_folder, args.seed, args.n_episodes, args.n_timesteps)


def _run_module(name: str, argv: Sequence[str]) -> int:
    module = importlib.import_module(f"sb3_hrl.experiments.{name}")
    # No abbreviations: the zoo's --seed is not our --seeds.
    parser = argparse.ArgumentParser(prog=f"sb3-hrl {name}", description=WITH_MODULE[name], allow_abbrev=False)
    module.add_arguments(parser)
    args, rest = parser.parse_known_args(argv)
    if rest and name != "train":
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    try:
        return module.run(args, rest) if name == "train" else module.run(args)
    except (UsageError, MissingExtraError) as error:
        print(f"sb3-hrl {name}: {error}", file=sys.stderr)
        return 2


def _add_bench_options(parser: argparse.ArgumentParser, name: str, has_learning: bool) -> None:
    parser.add_argument("--env", default="HalfCheetah-v5", help="an environment with a native form (default: HalfCheetah-v5)")
    if name == "num-envs":
        text = "numbers of environments (default: 2 4 8 16 32 64)"
        parser.add_argument("--n-envs-list", type=positive, nargs="+", default=[2, 4, 8, 16, 32, 64], metavar="N", help=text)
        parser.add_argument("--plot", default=None, metavar="FILE", help="draw the table into FILE (.png, .svg, .pdf)")
    else:
        parser.add_argument("--n-envs", type=positive, default=16, help="number of environments (default: 16)")
    parser.add_argument("--n-steps", type=positive, default=128, help="steps of each in a rollout (default: 128)")
    parser.add_argument("--net-arch", type=positive, nargs="+", default=[64, 64], help="layers of the policy (default: 64 64)")
    text = "environments of one forward in a native rollout (default: by --n-envs)"
    parser.add_argument("--shard-size", type=positive, default=None, help=text)
    if has_learning:
        parser.add_argument("--batch-size", type=positive, default=512, help="minibatch of the learner (default: 512)")
        parser.add_argument("--n-epochs", type=positive, default=10, help="epochs of the learner (default: 10)")
    parser.add_argument("--rounds", type=positive, default=7, help="rounds that count (default: 7)")
    parser.add_argument("--warmup", type=count, default=1, help="rounds before them (default: 1)")
    parser.add_argument("--total-timesteps", type=positive, default=None, help="instead of --rounds: at least so many steps")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="only these contestants")
    parser.add_argument("--json", default=None, metavar="FILE", help="write the figures to FILE")


def _run_preset(parser: argparse.ArgumentParser, args: argparse.Namespace) -> int:
    from sb3_hrl.errors import MissingExtraError
    from sb3_hrl.experiments.preset import bench_preset
    from sb3_hrl.threads import available_threads

    if not Path(args.output).absolute().parent.is_dir():
        parser.error(f"--output: there is no folder {Path(args.output).absolute().parent}")
    n_threads_list = args.n_threads_list or sorted({1, available_threads()})
    try:
        given = args.algo, args.env, args.conf_file, args.n_envs_list
        return bench_preset(*given, n_threads_list, args.rounds, args.output)
    except (ValueError, MissingExtraError) as error:
        print(error, file=sys.stderr)
        return 2


def _run_bench(parser: argparse.ArgumentParser, args: argparse.Namespace) -> int:
    if args.bench == "preset":
        return _run_preset(parser, args)
    from sb3_hrl.experiments import bench

    known = bench.ROLLOUTS if args.bench == "rollout" else bench.TRAINERS
    unknown = [name for name in args.only if name not in known]
    if unknown:
        parser.error(f"--only: no contestant is named {unknown[0]!r}; there are {', '.join(known)}")
    for option, file in (("--json", args.json), ("--plot", getattr(args, "plot", None))):
        if file is not None and not Path(file).absolute().parent.is_dir():
            parser.error(f"{option}: there is no folder {Path(file).absolute().parent}")

    def n_rounds(n_rollout: int) -> int:
        return args.rounds if args.total_timesteps is None else -(-args.total_timesteps // n_rollout)

    setting = bench.Setting(args.env, getattr(args, "n_envs", 1), args.n_steps, tuple(args.net_arch), args.shard_size)
    if args.bench != "rollout":
        setting = setting._replace(batch_size=args.batch_size, n_epochs=args.n_epochs)
    if args.bench == "num-envs":
        files = args.json, args.plot
        return bench.bench_num_envs(setting, args.n_envs_list, n_rounds, args.warmup, args.only, *files)
    run = bench.bench_rollout if args.bench == "rollout" else bench.bench_train
    return run(setting, bench.Effort(n_rounds(setting.n_total), args.warmup), args.only, args.json)


if __name__ == "__main__":
    sys.exit(main())
