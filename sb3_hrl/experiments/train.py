"""``sb3-hrl train``: the zoo's training, for a time or for steps, with its metrics and its summary at the end."""

import argparse
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import rl_zoo3.import_envs
import rl_zoo3.train
import yaml
from rl_zoo3.utils import ALGOS
from stable_baselines3 import A2C, PPO
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.vec_env import VecEnv
from tqdm import tqdm

from sb3_hrl.checkpoint import Resumable, find, resumable
from sb3_hrl.errors import UsageError
from sb3_hrl.experiments.metrics import CONFIG, SUMMARY
from sb3_hrl.experiments.options import count, key_value
from sb3_hrl.experiments.runs import read_json
from sb3_hrl.experiments.timed import ENDLESS, count_on, train_for
from sb3_hrl.registry import suggest
from sb3_hrl.zoo.manager import PluginExperimentManager
from sb3_hrl.zoo.validation import HYPERPARAMS

RULE = "=" * 70


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """
    :param parser: of the command; what it does not know goes to the zoo
    """
    parser.add_argument("--algo", default="ppo", help="any algorithm of the zoo or of a plug-in (default: ppo)")
    parser.add_argument("--env", default="CartPole-v1", help="environment (default: CartPole-v1)")
    parser.add_argument("--duration", type=_duration, metavar="TIME", help="train so long: hours (0.5), or 30m, 90s, 2h")
    parser.add_argument("--output-dir", type=Path, metavar="DIR", help="the run's folder (default: a new one of the zoo's)")
    parser.add_argument("--resume", type=Path, metavar="RUN", help="go on with a run (its folder, or a checkpoint), exactly")
    parser.add_argument("--seeds", type=count, nargs="+", metavar="SEED", help="several runs, one after the other")
    parser.epilog = "All other options are those of `python -m rl_zoo3.train`; see its --help."


def _duration(text: str) -> float:
    match = re.fullmatch(r"([0-9]*\.?[0-9]+)([hms]?)", text)
    seconds = float(match[1]) * {"h": 3600, "": 3600, "m": 60, "s": 1}[match[2]] if match else 0.0
    if seconds <= 0:
        raise argparse.ArgumentTypeError(f"expected hours (0.5) or a time such as 30m, 90s or 2h, got {text!r}")
    return seconds


_STEPS = {"-n", "--n-timesteps"}
# Options, each with its other names, whose values are pairs.
_OF_PAIRS: tuple[tuple[str, ...], ...] = (("-params", "--hyperparams"), ("--env-kwargs",), ("--eval-env-kwargs",))


class Options(NamedTuple):
    """
    What the zoo has no option for.

    :param duration_seconds: how long to train, or None
    :param output_dir: the run's folder, or None for the zoo's choice
    :param goes_on: whether a run goes on that cannot go on exactly
    """

    duration_seconds: float | None
    output_dir: Path | None
    goes_on: bool = False


def run(args: argparse.Namespace, zoo_args: Sequence[str]) -> int:
    """
    :param args: what ``add_arguments`` asked for
    :param zoo_args: the zoo's own options
    :return: the exit code
    """
    if args.resume is not None:
        zoo_args = _resume(args, zoo_args)
    _check(args, zoo_args)
    zoo_args = _merge(zoo_args)
    if args.seeds is not None:
        return _train_seeds(args, zoo_args)
    goes_on = args.resume is not None and not _is_resumable(args.algo)
    return _train(args.algo, args.env, zoo_args, Options(args.duration, args.output_dir, goes_on))


def _resume(args: argparse.Namespace, zoo_args: Sequence[str]) -> list[str]:
    """What the run was started with, its newest whole checkpoint, and what is different this time."""
    if args.seeds is not None:
        raise UsageError("--resume and --seeds exclude each other: a run has one seed")
    path = Path(args.resume)
    config = (path if path.is_dir() else path.parent) / CONFIG
    saved = yaml.safe_load(config.read_text()) if config.is_file() else None
    try:
        if saved is not None and path.is_dir() and not _is_resumable(saved["algo"]):
            checkpoint = _find_stock(path, saved["env"])
        else:
            checkpoint = find(path)
    except FileNotFoundError as error:
        raise UsageError(f"--resume: {error}") from None
    if saved is None:
        raise UsageError(f"--resume: {config.parent} has no {CONFIG} that says how the run was started")
    args.algo, args.env = saved["algo"], saved["env"]
    arguments = list(saved["arguments"])
    given = _names(zoo_args) & _STEPS
    summary = read_json(path / SUMMARY) if path.is_dir() else {}
    wanted = saved.get("duration_seconds") if args.duration is None else args.duration
    is_over = wanted is not None and 3600 * summary.get("duration_hours", 0) >= wanted
    if not given and (is_over or (args.duration is None and summary.get("status") == "finished")):
        raise UsageError(f"--resume: {path} has finished, so there is nothing left: give more steps (-n) or time (--duration)")
    if args.duration is not None:
        for index in reversed([i for i, text in enumerate(arguments) if text.partition("=")[0] in _STEPS]):
            del arguments[index : index + 1 + ("=" not in arguments[index])]
    elif not given:
        args.duration = saved.get("duration_seconds")
    return ["--seed", str(saved["seed"]), *arguments, *zoo_args, "-i", str(checkpoint)]


def _is_resumable(algo: str) -> bool:
    """Whether its runs go on exactly; of an algorithm that is not known here that is asked later."""
    return algo not in ALGOS or ALGOS[algo] in (PPO, A2C) or issubclass(ALGOS[algo], Resumable)


def _find_stock(folder: Path, env_id: str) -> Path:
    """The newest model that the zoo has saved there: at the end, or by ``--save-freq``."""
    saved = sorted(folder.glob("rl_model_*_steps.zip"), key=lambda path: int(path.stem.split("_")[2]))
    final = folder / f"{env_id.replace('/', '-')}.zip"
    found = [*saved, *([final] if final.is_file() else [])]
    if not found:
        raise FileNotFoundError(f"{folder}: the folder has no model yet (*.zip): train with --save-freq for some")
    return found[-1]


def _check(args: argparse.Namespace, zoo_args: Sequence[str]) -> None:
    """Find what can be found before anything is created. What the zoo's own parser finds is left to it."""
    if args.algo not in ALGOS:
        raise UsageError(f"--algo: there is no {args.algo!r}{suggest(args.algo, ALGOS)}; choose from {', '.join(ALGOS)}")
    if "--gym-packages" not in zoo_args and args.env not in gym.envs.registry:
        nearest = suggest(args.env, gym.envs.registry)
        raise UsageError(
            f"--env: no environment is registered as {args.env!r}{nearest or '; --gym-packages imports its package'}"
        )
    for names in _OF_PAIRS:
        for text in _split(zoo_args, names)[0]:
            try:
                key_value(text)
            except argparse.ArgumentTypeError as error:
                raise UsageError(f"{names[0]}: {error}") from None
    given = _names(zoo_args)
    for options, other in ((_STEPS, "--duration"), ({"--seed"}, "--seeds")):
        if given & options and getattr(args, other.removeprefix("--")) is not None:
            raise UsageError(f"{other} and {(given & options).pop()} exclude each other: leave one of them out")
    if given & {"-optimize", "--optimize-hyperparameters"} and (args.duration, args.output_dir, args.seeds) != (None,) * 3:
        raise UsageError("-optimize goes without --duration, --output-dir and --seeds: its trials are counted in steps")
    if args.output_dir is not None and args.output_dir.is_dir() and any(args.output_dir.iterdir()):
        raise UsageError(f"--output-dir: {args.output_dir} is not empty; name a folder that does not exist yet")
    if args.output_dir is not None and args.output_dir.exists() and not args.output_dir.is_dir():
        raise UsageError(f"--output-dir: {args.output_dir} is a file; name a folder that does not exist yet")


def _names(zoo_args: Sequence[str]) -> set[str]:
    """The options, without their values."""
    return {text.partition("=")[0] for text in zoo_args if text.startswith("-")}


def _split(zoo_args: Sequence[str], options: Sequence[str]) -> tuple[list[str], list[str]]:
    """What follows some options, up to the next one; and all the rest."""
    values: list[str] = []
    rest: list[str] = []
    is_value = False
    for text in zoo_args:
        if text in options:
            is_value = True
            continue
        is_value = is_value and not text.startswith("-")
        (values if is_value else rest).append(text)
    return values, rest


def _merge(zoo_args: Sequence[str]) -> list[str]:
    """The zoo takes the last ``-params``, and drops those before; here the last of each key counts."""
    merged = list(zoo_args)
    for options in _OF_PAIRS:
        values, merged = _split(merged, options)
        pairs = {text.partition(":")[0]: text for text in values}
        merged += [options[0], *pairs.values()] if pairs else []
    return merged


def _train_seeds(args: argparse.Namespace, zoo_args: Sequence[str]) -> int:
    """Each in a process of its own, so that none inherits another's memory or random numbers."""
    line = [sys.executable, "-m", "sb3_hrl.experiments.cli", "train", "--algo", args.algo, "--env", args.env, *zoo_args]
    line += [] if args.duration is None else ["--duration", f"{args.duration}s"]
    failed = []
    for seed in args.seeds:
        where = [] if args.output_dir is None else ["--output-dir", str(args.output_dir / f"seed_{seed}")]
        if subprocess.run([*line, "--seed", str(seed), *where], check=False).returncode != 0:
            failed.append(seed)
    if failed:
        print(f"sb3-hrl: the training with seed {', '.join(map(str, failed))} failed", file=sys.stderr)
    return 1 if failed else 0


def _train(algo: str, env_id: str, zoo_args: Sequence[str], options: Options) -> int:
    """``python -m rl_zoo3.train``, its experiment manager replaced; SB3's PPO and A2C can go on exactly, as ours can."""
    defaults = [] if {"--verbose"} & set(zoo_args) else ["--verbose", "0"]  # the screen is for the bar
    stock = ALGOS[algo]
    with ExitStack() as stack:
        stack.enter_context(_replaced(rl_zoo3.train, "ExperimentManager", partial(RunManager.from_zoo, options)))
        stack.enter_context(_replaced(sys, "argv", ["sb3-hrl train", *defaults, *zoo_args, "--algo", algo, "--env", env_id]))
        if stock in (PPO, A2C):
            stack.callback(ALGOS.__setitem__, algo, stock)
            ALGOS[algo] = resumable(stock)
        rl_zoo3.train.train()
    return 0


@contextmanager
def _replaced(module: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, before)


class RunManager(PluginExperimentManager):
    """The same experiment manager for every algorithm, with what ``sb3-hrl train`` adds."""

    goes_on = False

    @classmethod
    def from_zoo(cls, options: Options, args: argparse.Namespace, *rest: Any, **kwargs: Any) -> "RunManager":
        """
        :param options: what the zoo has no option for
        :param args: the zoo's options; with ours in them, they are saved as ``args.yml``
        :param rest: the zoo's other arguments
        :param kwargs: and these
        :return: the manager
        """
        args.duration_seconds = options.duration_seconds
        manager = cls(args, *rest, **kwargs)
        manager.goes_on = options.goes_on
        manager.duration_seconds = options.duration_seconds
        if options.duration_seconds is not None:
            manager.n_timesteps = ENDLESS
        if options.output_dir is not None:
            manager.save_path = str(options.output_dir)
            manager.params_path = f"{manager.save_path}/{manager.env_name}"
        if not manager.continue_training:
            manager.trained_agent = os.path.join(manager.save_path, "")  # no stray statistics, whatever the algorithm
        if manager.tensorboard_log is None:
            manager.tensorboard_log = os.path.join(manager.save_path, "tensorboard")
        return manager

    def _find_hyperparams(self, config: str | None) -> Path:
        # What plug-ins have, stock algorithms have here as well, with the zoo's own file.
        ours = super()._find_hyperparams(config)
        return ours or (Path(self.config) if config is None else HYPERPARAMS / f"{self.algo}.yml")

    def create_callbacks(self) -> None:
        super().create_callbacks()
        if self.recorder is not None:
            if self.goes_on:
                self._copy_metrics()
            self.show_progress = False
            self.callbacks.insert(0, RunProgressBar(self.recorder))  # the zoo ends the first one, whatever happens

    def _load_pretrained_agent(self, hyperparams: dict[str, Any], env: VecEnv) -> BaseAlgorithm:
        model = super()._load_pretrained_agent(hyperparams, env)
        if self.goes_on:
            lost = ["environments", "random numbers"]
            if isinstance(model, OffPolicyAlgorithm) and not (model.replay_buffer and model.replay_buffer.size()):
                lost.append("the replay buffer (--save-replay-buffer keeps it)")
            agent = Path(self.trained_agent)
            statistics = agent.parent / str(self.env_name) / "vecnormalize.pkl"
            if self.normalize and not statistics.is_file():
                lost.append("the statistics of VecNormalize, which a run has when it ends or has a new best model")
            elif self.normalize and statistics.stat().st_mtime < agent.stat().st_mtime:
                lost.append("the statistics of VecNormalize, in part: they are older than the model")
            print(f"Continuing at step {model.num_timesteps}, not exactly; what begins anew: {', '.join(lost)}")
            count_on(model)
        return model

    def setup_experiment(self) -> tuple[BaseAlgorithm, dict[str, Any]] | None:
        results = super().setup_experiment()
        if results is not None and self.duration_seconds is not None:
            recorder = self.recorder
            assert recorder is not None
            train_for(results[0], self.duration_seconds, lambda: recorder.training_seconds)
        return results

    def save_trained_model(self, model: BaseAlgorithm) -> None:
        super().save_trained_model(model)
        print(describe(read_json(Path(self.save_path) / SUMMARY), self.save_path))


class RunProgressBar(BaseCallback):
    """
    How much of the training is done, what is left of its time, how fast it is and what it earns.

    :param recorder: knows
    """

    def __init__(self, recorder: Any) -> None:
        super().__init__()
        self._recorder = recorder
        self._bar: tqdm | None = None
        self._next = 0.0

    def _on_training_start(self) -> None:
        seconds = self._recorder.duration_seconds
        total = self.model._total_timesteps if seconds is None else seconds
        unit = "{n:,.0f}/{total:,.0f} steps" if seconds is None else "{n:,.0f}/{total:,.0f} s"
        bar_format = f"Training {{percentage:3.0f}}%|{{bar}}| {unit} [{{elapsed}}<{{remaining}}{{postfix}}]"
        self._bar = tqdm(total=total, initial=self._done, bar_format=bar_format, dynamic_ncols=True)

    @property
    def _done(self) -> float:
        # Never more than all: tqdm gives its total up then, and cannot write it any more.
        seconds = self._recorder.duration_seconds
        if seconds is not None:
            return min(self._recorder.training_seconds, seconds)
        return min(self.num_timesteps, self.model._total_timesteps)

    def _on_step(self) -> bool:
        if time.monotonic() >= self._next and self._bar is not None:
            # A terminal sees it move; a file gets a line now and then.
            self._next = time.monotonic() + (0.5 if sys.stderr.isatty() else 30.0)
            self._show()
        return True

    def _show(self) -> None:
        assert self._bar is not None
        seconds, rewards = self._recorder.training_seconds, self._recorder.last_rewards
        reward = f", reward {sum(rewards) / len(rewards):.2f}" if rewards else ""
        fps = self.num_timesteps / seconds if seconds > 0 else 0
        text = f"step {self.num_timesteps:,}, update {self._recorder.n_updates:,}, FPS {fps:,.0f}{reward}"
        self._bar.set_postfix_str(text, refresh=False)
        self._bar.update(self._done - self._bar.n)
        self._bar.refresh()

    def _on_training_end(self) -> None:
        if self._bar is not None:
            self._show()
            self._bar.close()
            self._bar = None


def describe(summary: dict[str, Any], folder: str) -> str:
    """
    :param summary: of a run
    :param folder: where it lies
    :return: the summary as it is printed
    """
    lines = [RULE, "TRAINING SUMMARY", RULE, f"Algorithm: {summary['algorithm']} ({summary['mode']})"]
    lines.append(f"Environment: {summary['env']}, seed {summary['seed']}")
    overshoot = summary["overshoot_seconds"]
    late = "" if overshoot is None else f", {overshoot:.1f} s more than asked for"
    lines.append(f"Duration: {summary['duration_hours']:.2f} hours ({3600 * summary['duration_hours']:,.1f} s{late})")
    if summary["status"] != "finished":
        lines.append(f"Status: {summary['status']}")
    if summary["num_workers"] > 1:
        lines.append(f"Workers: {summary['num_workers']}")
    lines += [
        f"Total Environments: {summary['num_envs']}",
        f"Total Timesteps: {summary['total_timesteps']:,}",
        f"Total Updates: {summary['total_updates']:,}",
        f"Average FPS: {_number(summary['avg_fps'])}",
        f"Final FPS: {_number(summary['final_fps'])}",
        "",
        f"Performance ({summary['num_episodes']:,} episodes):",
        f"  Initial Reward: {_with_std(summary, 'initial_reward')}",
        f"  Final Reward: {_with_std(summary, 'final_reward')}",
        f"  Best Reward: {_number(summary['best_reward'], 2)}",
        "",
        "Resource Usage:",
        f"  Peak Memory: {summary['peak_memory_gb']:.2f} GB",
        "",
        f"Results saved to: {folder}",
        RULE,
    ]
    return "\n".join(lines)


def _number(value: float | None, digits: int = 0) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


def _with_std(summary: dict[str, Any], name: str) -> str:
    mean, std = summary[name], summary[f"{name}_std"]
    return "-" if mean is None else f"{mean:.2f} ± {std:.2f}"
