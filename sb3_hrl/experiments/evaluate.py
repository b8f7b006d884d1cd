"""``sb3-hrl evaluate``: episodes of a trained model, and what they say."""

import argparse
import inspect
import json
import pickle
import re
import time
from collections.abc import Container, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import rl_zoo3.import_envs  # noqa: F401 (registers environments)
import torch as th
from rl_zoo3.utils import ALGOS, create_test_env, get_saved_hyperparams
from scipy.stats import bootstrap
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.save_util import load_from_zip_file
from stable_baselines3.common.utils import check_for_correct_spaces, set_random_seed
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv
from tqdm import tqdm

from sb3_hrl.errors import UsageError
from sb3_hrl.experiments.machine import describe_machine
from sb3_hrl.experiments.metrics import write_atomically
from sb3_hrl.experiments.options import key_value, positive
from sb3_hrl.experiments.runs import Run, find_run, latest_runs, read_run
from sb3_hrl.registry import suggest
from sb3_hrl.zoo.hook import use_own_statistics

RULE = "=" * 60
# Vectorised where it helps: one forward pass for all of them.
DEFAULT_N_ENVS = 8
CONFIDENCE = 0.95
FILM_FRAMES = 8
MAX_FRAMES = 3000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """
    :param parser: of the command
    """
    parser.add_argument(
        "run", metavar="RUN_OR_ZIP", type=Path, nargs="?", help="a run's folder, or a saved model (default: latest run)"
    )
    parser.add_argument("--n-episodes", type=positive, default=100, metavar="N", help="how many episodes (default: 100)")
    parser.add_argument("--deterministic", action="store_true", help="the likeliest action instead of a drawn one")
    parser.add_argument("--env", help="another environment than the run's")
    text = "arguments of the environment, KEY:VALUE, on top of the run's"
    parser.add_argument("--env-kwargs", nargs="+", type=key_value, metavar="KEY:VALUE", help=text)
    parser.add_argument("--algo", help="the algorithm, where it cannot be told from the file; without RUN, whose latest run")
    parser.add_argument("--load-best", action="store_true", help="the run's best model instead of its last")
    parser.add_argument("--seed", type=int, default=0, help="of environments and actions (default: 0, as enjoy)")
    text = f"environments side by side (default: {DEFAULT_N_ENVS}; 1 plays the episodes of enjoy)"
    parser.add_argument("--n-envs", type=positive, default=DEFAULT_N_ENVS, metavar="N", help=text)
    parser.add_argument("--num-threads", type=positive, metavar="N", help="of torch (default: its own choice)")
    parser.add_argument("--device", default="auto", help="cpu, cuda, ... (default: auto)")
    parser.add_argument("-f", "--log-folder", type=Path, default=Path("logs"), help="where runs lie (default: logs)")
    parser.add_argument("--video", type=Path, metavar="FILE.mp4", help="film the first episode")
    parser.add_argument("--film", type=Path, metavar="FILE.png", help="a film strip of the first episode")


class Episodes(NamedTuple):
    """
    What was played; a row for each episode.

    :param rewards: the environment's own, whatever wrappers do to them
    :param lengths: in steps of the environment
    :param step_rewards: summed over the agent's steps, as ``enjoy`` prints them
    :param successes: empty where the environment knows no success
    """

    rewards: list[float]
    lengths: list[int]
    step_rewards: list[float]
    successes: list[bool]


class Subject(NamedTuple):
    """
    What is evaluated.

    :param model_file: the saved model
    :param run: the run that it belongs to, if any
    :param algo: its algorithm
    :param env_id: the environment
    """

    model_file: Path
    run: Run | None
    algo: str
    env_id: str

    def report_file(self, env_kwargs: Mapping[str, Any] | None) -> Path:
        """
        :param env_kwargs: those that were given for this evaluation
        :return: ``evaluation.json`` for a run's final model on the run's own environment; others have in their name what is
            different
        """
        parts = ["evaluation"]
        if self.run is None or self.model_file.name != self.run.final_model.name:
            parts.append(self.model_file.stem)
        if self.run is not None and self.env_id != self.run.env_id:
            parts.append(self.env_id)
        parts += [f"{key}={value}" for key, value in (env_kwargs or {}).items()]
        return self.model_file.with_name(re.sub(r"[^\w.=-]+", "-", "_".join(parts)) + ".json")


def run(args: argparse.Namespace) -> int:
    """
    :param args: what ``add_arguments`` asked for
    :return: the exit code
    """
    subject = _find_subject(args)
    for option, file in (("--video", args.video), ("--film", args.film)):
        if file is not None and not file.absolute().parent.is_dir():
            raise UsageError(f"{option}: there is no folder {file.absolute().parent}")
    if args.num_threads is not None:
        th.set_num_threads(args.num_threads)
    given = None if args.env_kwargs is None else dict(args.env_kwargs)
    settings, report_file = _level_settings(subject, given), subject.report_file(given)
    model: BaseAlgorithm | None = None
    print(f"{RULE}\nEvaluating {subject.algo} on {subject.env_id}\n{RULE}\nModel: {subject.model_file}")
    results = {}
    for name, env_kwargs in settings.items():
        set_random_seed(args.seed)
        env = make_env(subject, min(args.n_envs, args.n_episodes), args.seed, env_kwargs)
        try:
            model = load_model(subject, env, args.seed, args.device)
            begin = time.perf_counter()
            episodes = play(model, env, args.n_episodes, args.deterministic, name)
            seconds = time.perf_counter() - begin
        finally:
            env.close()
        results[name] = {**summarise(episodes, args.seed), "seconds": seconds, "env_kwargs": env_kwargs, **episodes._asdict()}
        print(describe(name, results[name], args.deterministic))
    first = next(iter(results.values()))
    report = {
        "algorithm": subject.algo,
        "env": subject.env_id,
        "model": subject.model_file.name,
        "deterministic": args.deterministic,
        "seed": args.seed,
        "n_envs": min(args.n_envs, args.n_episodes),
        **{key: first[key] for key in first if key.startswith(("n_", "mean", "std", "min", "max", "success", "interval"))},
        "evaluations": results,
        "machine": describe_machine(),
    }
    write_atomically(report_file, json.dumps(report, indent=1) + "\n")
    print(f"Written to {report_file}", flush=True)
    if args.video is not None or args.film is not None:
        _film(subject, args, next(iter(settings.values())))
    return 0


# --- what is evaluated ------------------------------------------------------------------------------------------------------


def _find_subject(args: argparse.Namespace) -> Subject:
    path = args.run if args.run is not None else latest_runs(args.log_folder, args.algo)[0].folder
    if path.suffix == ".zip" or path.is_file():
        if not path.is_file():
            raise UsageError(f"there is no {path}; name a run's folder or a saved model (.zip)")
        model_file, found = path, find_run(path.absolute().parent)
    else:
        found = read_run(path)
        model_file = found.folder / "best_model.zip" if args.load_best else found.model_file()
        if not model_file.is_file():
            raise UsageError(f"{path} has no best_model.zip: it is saved by a training with --eval-freq")
    algo = args.algo or (found.algo if found is not None else _recognise(model_file))
    if algo not in ALGOS:
        raise UsageError(f"--algo: there is no {algo!r}{suggest(algo, ALGOS)}; choose from {', '.join(ALGOS)}")
    env_id = args.env or (found.env_id if found is not None else None)
    if env_id is None:
        raise UsageError(f"{model_file} lies in no run's folder, so its environment is not known: name it with --env")
    if env_id not in gym.envs.registry:
        raise UsageError(f"--env: no environment is registered as {env_id!r}{suggest(env_id, gym.envs.registry)}")
    return Subject(model_file, found, algo, env_id)


def _recognise(model_file: Path) -> str:
    """
    :param model_file: a saved model of any algorithm
    :return: of the algorithms with its policy the one whose arguments fit best: fewest that it lacks, most that it has
    """
    data = _read_data(model_file)
    unsaved = {"policy", "env", "device", "stats_window_size"}  # under these names
    fits: dict[str, tuple[int, int]] = {}
    for name, algorithm in ALGOS.items():
        arguments = {key for key in inspect.signature(algorithm).parameters if not key.startswith("_")} - unsaved
        if data.get("policy_class") in algorithm.policy_aliases.values():
            fits[name] = -len(arguments - set(data)), len(arguments & set(data))
    if not fits:
        raise UsageError(f"{model_file}: its algorithm cannot be told from the file; name it with --algo")
    return max(fits, key=lambda name: fits[name])


def _read_data(model_file: Path) -> dict[str, Any]:
    try:
        data, _, _ = load_from_zip_file(model_file, device="cpu")
    except Exception as error:
        reason = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no reason given'}"
        raise UsageError(f"{model_file} is no saved model that can be read ({reason})") from None
    return data or {}


def _level_settings(subject: Subject, given: Mapping[str, Any] | None) -> dict[str, dict[str, Any]]:
    """
    :param subject: what is evaluated
    :param given: ``--env-kwargs``
    :return: arguments of the environment for each evaluation, by name; where a run's own evaluations see other levels than its
        training did, for both
    """
    if subject.run is None:
        return {"evaluation": dict(given or {})}
    args, hyperparams = subject.run.args, subject.run.hyperparams
    train = dict(args.get("env_kwargs") or hyperparams.get("env_kwargs") or {})
    test = dict(args.get("eval_env_kwargs") or hyperparams.get("eval_env_kwargs") or train)
    if given is not None or test == train:
        return {"evaluation": {**test, **(given or {})}}
    return {"unseen levels": test, "training levels": train}


def make_env(subject: Subject, n_envs: int, seed: int, env_kwargs: Mapping[str, Any], render: bool = False) -> VecEnv:
    """
    Environments as ``enjoy`` makes them, with the run's wrappers and statistics.

    :param subject: what is evaluated
    :param n_envs: how many
    :param seed: of the first one
    :param env_kwargs: their arguments
    :param render: whether they are to give pictures
    :return: the environments
    """
    hyperparams: dict[str, Any] = {"normalize": False}
    stats_path = None
    if subject.run is not None:
        config = subject.run.params_folder / "config.yml"
        if config.is_file() and not subject.run.hyperparams:
            raise UsageError(f"{config} cannot be read: take it from a whole copy of the run")
        hyperparams, stats_path = get_saved_hyperparams(str(subject.run.params_folder), test_mode=True)
        # What the environment's arguments are is decided by now.
        for key in ("env_kwargs", "eval_env_kwargs"):
            hyperparams.pop(key, None)
    kwargs = {**env_kwargs, **({"render_mode": "rgb_array"} if render else {})}
    try:
        env = create_test_env(
            subject.env_id,
            n_envs=n_envs,
            stats_path=stats_path,
            seed=seed,
            should_render=False,
            hyperparams=hyperparams,
            env_kwargs=kwargs,
            vec_env_cls=DummyVecEnv,
        )
        use_own_statistics(env, str(subject.model_file))
        return env
    except (pickle.UnpicklingError, EOFError) as error:  # by the zoo, of its vecnormalize.pkl
        raise UsageError(
            f"{stats_path}/vecnormalize.pkl cannot be read ({error}): take it from a whole copy of the run"
        ) from None
    except (TypeError, ValueError, AssertionError) as error:
        raise UsageError(f"{subject.env_id} cannot be made with {kwargs} and the run's wrappers: {error}") from None


def load_model(subject: Subject, env: VecEnv, seed: int, device: str) -> BaseAlgorithm:
    """
    :param subject: what is evaluated
    :param env: the environments that it is to act in
    :param seed: of its actions
    :param device: where it runs
    :return: the model, without a buffer and without environments, as ``enjoy`` loads it
    """
    algorithm = ALGOS[subject.algo]
    kwargs: dict[str, Any] = {"seed": seed}
    if issubclass(algorithm, OffPolicyAlgorithm):
        kwargs |= {"buffer_size": 1, "optimize_memory_usage": False}
    custom_objects = {"learning_rate": 0.0, "lr_schedule": lambda _: 0.0, "clip_range": lambda _: 0.0}
    try:
        model = algorithm.load(subject.model_file, custom_objects=custom_objects, device=device, **kwargs)
    except Exception as error:
        reason = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no reason given'}"
        raise UsageError(f"{subject.model_file} does not load as {subject.algo} ({reason})") from None
    try:
        check_for_correct_spaces(_as_model_sees(model, env), model.observation_space, model.action_space)
    except ValueError as error:
        raise UsageError(f"{subject.model_file} does not fit {subject.env_id}: {error}") from None
    return model


def _as_model_sees(model: BaseAlgorithm, env: VecEnv) -> VecEnv:
    """Images may come with their channels last: the model turns them itself."""
    return model._wrap_env(env, verbose=0, monitor_wrapper=False)


# --- episodes ---------------------------------------------------------------------------------------------------------------


def play(model: BaseAlgorithm, env: VecEnv, n_episodes: int, deterministic: bool, name: str) -> Episodes:
    """
    :param model: who acts
    :param env: where
    :param n_episodes: how many episodes, dealt out evenly to the environments, so that short ones have no advantage
    :param deterministic: the likeliest action instead of a drawn one
    :param name: what the progress bar says
    :return: how they went
    """
    step_rewards: list[float] = []
    successes: list[bool] = []
    with tqdm(total=n_episodes, desc=name.capitalize(), unit="episode") as bar:

        def note(variables: dict[str, Any], _: dict[str, Any]) -> None:
            info = variables["info"]
            if variables["done"] and (not variables["is_monitor_wrapped"] or "episode" in info):
                step_rewards.append(float(variables["current_rewards"][variables["i"]]))
                if info.get("is_success") is not None:
                    successes.append(bool(info["is_success"]))
                bar.update()

        rewards, lengths = evaluate_policy(
            model, env, n_episodes, deterministic, callback=note, return_episode_rewards=True, warn=False
        )
    assert isinstance(rewards, list)
    assert isinstance(lengths, list)
    return Episodes([float(r) for r in rewards], [int(length) for length in lengths], step_rewards, successes)


def summarise(episodes: Episodes, seed: int) -> dict[str, Any]:
    """
    :param episodes: what was played
    :param seed: of the bootstrap
    :return: the figures of a report
    """
    rewards = np.array(episodes.rewards)
    low, high = _interval(rewards, seed)
    return {
        "n_episodes": len(rewards),
        "mean_reward": float(rewards.mean()),
        "std_reward": float(rewards.std()),
        "min_reward": float(rewards.min()),
        "max_reward": float(rewards.max()),
        "interval_low": low,
        "interval_high": high,
        "mean_length": float(np.mean(episodes.lengths)),
        "std_length": float(np.std(episodes.lengths)),
        "success_rate": float(np.mean(episodes.successes)) if episodes.successes else None,
    }


def _interval(values: np.ndarray, seed: int) -> tuple[float, float]:
    if np.ptp(values) == 0:  # nothing to draw from: SciPy would warn
        return float(values[0]), float(values[0])
    rng = np.random.default_rng(seed)
    result = bootstrap((values,), np.mean, confidence_level=CONFIDENCE, method="percentile", rng=rng)
    return float(result.confidence_interval.low), float(result.confidence_interval.high)


def describe(name: str, result: Mapping[str, Any], deterministic: bool) -> str:
    """
    :param name: of the evaluation
    :param result: its figures
    :param deterministic: how actions were chosen
    :return: as it is printed
    """
    lines = [RULE, f"{name.capitalize()}: results", RULE]
    lines.append(f"Episodes: {result['n_episodes']} ({'deterministic' if deterministic else 'stochastic'} actions)")
    lines.append(f"Mean Reward: {result['mean_reward']:.2f} ± {result['std_reward']:.2f}")
    interval = f"{result['interval_low']:.2f} … {result['interval_high']:.2f}"
    lines.append(f"95% interval of the mean: {interval} (bootstrap over episodes)")
    lines.append(f"Min/Max Reward: {result['min_reward']:.2f} / {result['max_reward']:.2f}")
    lines.append(f"Mean Episode Length: {result['mean_length']:.2f} ± {result['std_length']:.2f}")
    if result["success_rate"] is not None:
        lines.append(f"Success Rate: {result['success_rate']:.1%}")
    if not np.allclose(result["step_rewards"], result["rewards"], rtol=1e-3, atol=1e-2):
        steps = result["step_rewards"]
        lines.append(f"As wrappers hand it to the agent (enjoy): {np.mean(steps):.2f} ± {np.std(steps):.2f}")
    lines.append(RULE)
    return "\n".join(lines)


# --- pictures ---------------------------------------------------------------------------------------------------------------


def _film(subject: Subject, args: argparse.Namespace, env_kwargs: Mapping[str, Any]) -> None:
    import imageio.v3 as imageio

    n_pictures = FILM_FRAMES if args.video is None else None
    frames, fps = film_episode(subject, args.seed, args.deterministic, args.device, env_kwargs, n_pictures)
    if args.video is not None:
        from moviepy.video.io.ImageSequenceClip import ImageSequenceClip

        # Encoders want even numbers of rows and columns.
        height, width = (size - size % 2 for size in frames[0].shape[:2])
        with ImageSequenceClip([frame[:height, :width] for frame in frames], fps=fps) as clip:
            clip.write_videofile(str(args.video), logger=None)
        print(f"Video: {args.video} ({len(frames)} frames)")
    if args.film is not None:
        imageio.imwrite(args.film, np.concatenate([frames[i] for i in _spread(len(frames), FILM_FRAMES)], axis=1))
        print(f"Film strip: {args.film}")


def _spread(length: int, n: int) -> list[int]:
    return np.linspace(0, length - 1, min(n, length)).round().astype(int).tolist()


def film_episode(
    subject: Subject, seed: int, deterministic: bool, device: str, env_kwargs: Mapping[str, Any], n_pictures: int | None
) -> tuple[list[np.ndarray], float]:
    """
    :param subject: what is filmed
    :param seed: of the episode
    :param deterministic: the likeliest action instead of a drawn one
    :param device: where the model runs
    :param env_kwargs: arguments of the environment
    :param n_pictures: how many, spread over the episode, which is then played twice, since a picture may cost more than all of
        its steps; None for one at each step
    :return: the pictures of the first episode [height, width, 3], and how many steps make a second
    """

    def play_once(steps: Container[int]) -> tuple[int, list[np.ndarray], float]:
        set_random_seed(seed)
        env = make_env(subject, 1, seed, env_kwargs, render=True)
        frames: list[np.ndarray] = []
        try:
            model = load_model(subject, env, seed, device)
            obs, state, starts, step = env.reset(), None, np.ones(1, dtype=bool), 0
            while step < MAX_FRAMES and not (step and starts[0]):
                if step in steps:
                    frames.append(_take_picture(subject, env))
                actions, state = model.predict(obs, state=state, episode_start=starts, deterministic=deterministic)  # type: ignore[arg-type]
                obs, _, starts, _ = env.step(actions)
                step += 1
            return step, frames, float((env.get_attr("metadata")[0] or {}).get("render_fps", 30))
        finally:
            env.close()

    every = range(MAX_FRAMES)
    steps = every if n_pictures is None else _spread(play_once(())[0], n_pictures)
    _, frames, fps = play_once(steps)
    return frames, fps


def _take_picture(subject: Subject, env: VecEnv) -> np.ndarray:
    picture = env.render()
    if picture is None:
        raise UsageError(f"{subject.env_id} gives no pictures: it knows no render_mode 'rgb_array'")
    return np.asarray(picture)
