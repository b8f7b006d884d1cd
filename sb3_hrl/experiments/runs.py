"""Where runs lie, and what they say about themselves."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from sb3_hrl.errors import UsageError
from sb3_hrl.experiments.metrics import CONFIG


class Run(NamedTuple):
    """
    A run's folder, of ours or of the plain zoo.

    :param folder: where it lies
    :param algo: its algorithm's name in the zoo
    :param env_id: its environment
    :param params_folder: where the zoo keeps its ``config.yml``, ``args.yml`` and ``vecnormalize.pkl``
    """

    folder: Path
    algo: str
    env_id: str
    params_folder: Path

    @property
    def final_model(self) -> Path:
        """What the zoo saves at the end of the training."""
        return self.folder / f"{self.params_folder.name}.zip"

    @property
    def args(self) -> dict[str, Any]:
        """The zoo's options of the training."""
        return load_zoo_yaml(self.params_folder / "args.yml") or {}

    @property
    def hyperparams(self) -> dict[str, Any]:
        """Its hyperparameters, as they stood in the file."""
        return load_zoo_yaml(self.params_folder / "config.yml") or {}

    def model_file(self) -> Path:
        """
        :return: the final model, or else the newest checkpoint of a run that was not finished
        """
        if self.final_model.is_file():
            return self.final_model
        checkpoints = sorted(self.folder.glob("rl_model_*_steps.zip"), key=lambda file: int(file.stem.split("_")[-2]))
        if not checkpoints:
            raise UsageError(f"{self.folder} has no model yet: neither {self.final_model.name} nor a checkpoint (--save-freq)")
        return checkpoints[-1]


def read_run(folder: Path) -> Run:
    """
    :param folder: a run's
    :return: the run
    :raises UsageError: if it is none
    """
    if not folder.exists():
        raise UsageError(f"there is no {folder}; runs lie in the log folder, such as logs/ppo/CartPole-v1_1")
    run = find_run(folder)
    if run is None:
        what = "is not a folder" if folder.is_file() else "is empty" if not any(folder.iterdir()) else "is no run"
        raise UsageError(f"{folder} {what}: expected a folder that a training left, such as logs/ppo/CartPole-v1_1")
    return run


def find_run(folder: Path) -> Run | None:
    """
    :param folder: any
    :return: the run that it is, or None
    """
    for args_file in sorted(folder.glob("*/args.yml")):
        args = load_zoo_yaml(args_file)
        if args and "algo" in args and "env" in args:
            return Run(folder, str(args["algo"]), str(args["env"]), args_file.parent)
    return None


def expand(folder: Path) -> list[Run]:
    """
    :param folder: a run's, or one that holds runs (as ``--output-dir`` with ``--seeds`` does)
    :return: the runs
    """
    if folder.is_dir() and find_run(folder) is None:
        below = [run for child in sorted(folder.iterdir()) if child.is_dir() and (run := find_run(child))]
        if below:
            return below
    return [read_run(folder)]


def latest_runs(log_folder: Path, algo: str | None = None) -> list[Run]:
    """
    :param log_folder: the zoo's log folder
    :param algo: only of this algorithm
    :return: all runs below it, the newest first
    """
    runs = [run for folder in _folders(log_folder) if (run := find_run(folder)) and algo in (None, run.algo)]
    if not runs:
        which = "" if algo is None else f" of {algo}"
        raise UsageError(
            f"there is no run{which} in {log_folder}; name one, or train first: sb3-hrl train --algo {algo or 'ppo'}"
        )
    return sorted(runs, key=lambda run: (run.params_folder / "args.yml").stat().st_mtime, reverse=True)


def _folders(log_folder: Path) -> Iterator[Path]:
    yield from (file.parents[1] for depth in ("*", "*/*", "*/*/*") for file in log_folder.glob(f"{depth}/*/args.yml"))


def read_config(folder: Path) -> dict[str, Any]:
    """
    :param folder: a run's
    :return: its ``config.yaml``; empty if it has none, or one that cannot be read
    """
    try:
        config = yaml.safe_load((folder / CONFIG).read_text())
    except (OSError, ValueError, yaml.YAMLError):
        return {}
    return config if isinstance(config, dict) else {}


def read_json(file: Path) -> dict[str, Any]:
    """
    :param file: a JSON file
    :return: its content; empty if there is none, or none that can be read
    """
    try:
        content = json.loads(file.read_text())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


class _ZooLoader(yaml.SafeLoader):
    """Reads what the zoo writes, without running what a stranger may have written: other Python objects become null."""


def _sequence(loader: Any, node: Any) -> list[Any]:
    return loader.construct_sequence(node, deep=True)


_ORDERED_DICT = "tag:yaml.org,2002:python/object/apply:collections.OrderedDict"
_ZooLoader.add_constructor(_ORDERED_DICT, lambda loader, node: dict(_sequence(loader, node)[0]))
_ZooLoader.add_constructor("tag:yaml.org,2002:python/tuple", lambda loader, node: tuple(_sequence(loader, node)))
_ZooLoader.add_multi_constructor("tag:yaml.org,2002:python/", lambda loader, suffix, node: None)


def load_zoo_yaml(file: Path) -> Any:
    """
    :param file: the ``args.yml`` or ``config.yml`` of a run
    :return: what it holds; None if it cannot be read
    """
    try:
        return yaml.load(file.read_text(), Loader=_ZooLoader)
    except (OSError, ValueError, yaml.YAMLError, IndexError, TypeError):
        return None
