"""``sb3-hrl compare``: several runs side by side, as a table, a report, pictures and a page to look into."""

import argparse
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sb3_hrl.errors import MissingExtraError, UsageError
from sb3_hrl.experiments.metrics import METRICS, SUMMARY, Metric, read_metrics, write_atomically
from sb3_hrl.experiments.runs import Run, expand, latest_runs, read_config, read_json

WIDTH = 100
# With three seeds the edge of a band is the luckiest draw of 27: fewer repetitions would miss it here and there.
BOOTSTRAP_REPS = 5000
GRID = 100
# What the policy is improved by, whatever the algorithm calls it.
LOSSES = ("train/policy_gradient_loss", "train/policy_loss", "train/actor_loss", "train/loss")
REWARD = "rollout/ep_rew_mean"
# What names no setting as long as something else differs: how long it was trained, and what follows from n_actors.
UNTELLING = ("duration_seconds", "n_timesteps", "vec_env")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """
    :param parser: of the command
    """
    text = "runs' folders, or folders that hold runs (default: the latest run of each setting on the latest run's environment)"
    parser.add_argument("runs", metavar="RUN", type=Path, nargs="*", help=text)
    parser.add_argument("--output", type=Path, default=Path("comparison"), metavar="DIR", help="default: comparison")
    parser.add_argument("-f", "--log-folder", type=Path, default=Path("logs"), help="where runs lie (default: logs)")


# --- runs and settings ------------------------------------------------------------------------------------------------------


class RunData(NamedTuple):
    """
    What a run left.

    :param run: its folder
    :param setting: how it was set up, flat; without what differs between seeds
    :param summary: its training summary, or what its metrics say of it
    :param metrics: its logging steps
    :param evaluation: its last evaluation; empty if there is none
    :param notes: what is missing or damaged
    """

    run: Run
    setting: dict[str, Any]
    summary: dict[str, Any]
    metrics: list[Metric]
    evaluation: dict[str, Any]
    notes: list[str]

    @property
    def seed(self) -> int | None:
        """Of everything random in it."""
        return self.run.args.get("seed")


class Group(NamedTuple):
    """
    The runs of one setting, which differ in their seeds.

    :param label: its name in tables and plots
    :param runs: at least one
    """

    label: str
    runs: list[RunData]

    def values(self, key: str) -> list[float]:
        """
        :param key: of the summary
        :return: that of each run that has it
        """
        return [float(run.summary[key]) for run in self.runs if run.summary.get(key) is not None]

    def evaluations(self, key: str) -> list[float]:
        """
        :param key: of the evaluation
        :return: that of each run that was evaluated
        """
        return [float(run.evaluation[key]) for run in self.runs if run.evaluation.get(key) is not None]


class Estimate(NamedTuple):
    """
    :param value: of one run, or the interquartile mean of several
    :param low: of its 95 % interval over seeds; None for one run
    :param high: likewise
    """

    value: float
    low: float | None = None
    high: float | None = None


def load_run(run: Run) -> RunData:
    """
    :param run: a run's folder, finished or not, of ours or of the plain zoo
    :return: what can be read of it; what cannot, is noted
    """
    notes = []
    metrics, n_broken = read_metrics(run.folder / METRICS)
    if n_broken:
        notes.append(
            f"{n_broken} line{'s'[: n_broken > 1]} of {METRICS} cannot be read and {'are' if n_broken > 1 else 'is'} left out"
        )
    if not metrics:
        metrics = _read_monitors(run.folder)
        if not metrics:
            raise UsageError(
                f"{run.folder} has neither {METRICS} nor monitor files with an episode: there is nothing to compare"
            )
        notes.append(f"no {METRICS}: its curve comes from the monitor files, and it has no loss")
    summary = read_json(run.folder / SUMMARY)
    if not summary:
        last = max(metrics, key=lambda metric: metric.seconds)
        rewards = [metric.values[REWARD] for metric in metrics if metric.values.get(REWARD) is not None]
        summary = {
            "duration_hours": last.seconds / 3600,
            "total_timesteps": last.step,
            "avg_fps": last.step / last.seconds if last.seconds > 0 else None,
            "final_reward": rewards[-1] if rewards else None,
            "status": "unknown",
        }
        notes.append(f"no {SUMMARY} that can be read: its figures are those that were logged last")
    elif summary.get("status") == "running":
        notes.append("unfinished: it is still running, or was killed; compared as far as it goes")
    elif summary.get("status") not in ("finished", None):
        notes.append(f"unfinished: {summary['status']}; compared as far as it goes")
    evaluation = read_json(run.folder / "evaluation.json")
    if evaluation.get("env", run.env_id) != run.env_id:
        notes.append(f"its evaluation.json is of {evaluation['env']}, and is left out")
        evaluation = {}
    return RunData(run, _setting(run), summary, metrics, evaluation, notes)


def _read_monitors(folder: Path) -> list[Metric]:
    """The curve of a run that logged nothing, from the episodes that its environments wrote down."""
    episodes: list[tuple[float, float, int]] = []
    for file in sorted(folder.glob("*.monitor.csv")):
        for line in file.read_text(errors="replace").splitlines()[2:]:
            try:
                reward, length, seconds = (float(text) for text in line.split(",")[:3])
            except ValueError:  # half a line
                continue
            episodes.append((seconds, reward, int(length)))
    episodes.sort()
    steps = np.cumsum([length for _, _, length in episodes]).tolist()
    rewards = [reward for _, reward, _ in episodes]
    return [
        Metric(step, seconds, {REWARD: float(np.mean(rewards[max(0, i - 99) : i + 1]))})
        for i, (step, (seconds, _, _)) in enumerate(zip(steps, episodes, strict=True))
    ]


def _setting(run: Run) -> dict[str, Any]:
    config = read_config(run.folder)
    if not config:
        config = {"algo": run.algo, "env": run.env_id, "hyperparams": run.hyperparams}
        # Options that the zoo's file of hyperparameters does not show; with none, it has them.
        config |= {key: run.args[key] for key in ("n_timesteps", "env_kwargs") if run.args.get(key) not in (None, -1)}
    return _flat({key: value for key, value in config.items() if key not in ("seed", "command", "arguments")})


def _flat(mapping: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in mapping.items():
        name = f"{prefix}{key}".removeprefix("hyperparams.")
        flat |= _flat(value, f"{name}.") if isinstance(value, Mapping) and value else {name: value}
    return flat


def group_runs(runs: Sequence[RunData]) -> list[Group]:
    """
    :param runs: in the order in which they were named
    :return: those of one setting together; of several with one seed, such as a run and its continuation, the longest
    """
    settings: dict[str, list[RunData]] = {}
    for run in runs:
        group = settings.setdefault(json.dumps(run.setting, sort_keys=True, default=str), [])
        same = next((i for i, other in enumerate(group) if run.seed is not None and run.seed == other.seed), None)
        if same is None:
            group.append(run)
            continue
        longer, other = sorted((group[same], run), key=lambda item: -(item.summary.get("total_timesteps") or 0))
        longer.notes.append(f"{other.run.folder} has its setting and its seed, and not more steps: it is left out")
        group[same] = longer
    return [Group(label, group) for label, group in zip(_labels(list(settings.values())), settings.values(), strict=True)]


def _labels(groups: list[list[RunData]]) -> list[str]:
    """Short names that tell settings apart: the algorithm, and only where that is not enough what differs, or the folder."""
    firsts = [group[0] for group in groups]
    labels = []
    for first in firsts:
        differing = _differing([other.setting for other in firsts if other.run.algo == first.run.algo])
        telling = [key for key in differing if key not in UNTELLING] or differing
        values = [(key, first.setting.get(key)) for key in telling]
        parts = [f"{key.rpartition('.')[2]}={value}" for key, value in values if value is not None]
        labels.append(" ".join([first.run.algo, *parts]) if len(telling) <= 2 else _folder_label(first.run))
    for names in (labels, [_folder_label(first.run) for first in firsts]):
        if len(set(names)) == len(names):
            return names
    return [str(first.run.folder) for first in firsts]


def _folder_label(run: Run) -> str:
    """By the folder, that of all seeds if there are several."""
    folder = run.folder.absolute()
    name = folder.parent.name if re.fullmatch(r"seed_\d+", folder.name) else folder.name
    return name if run.algo in name else f"{run.algo} {name}"


def _differing(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    keys = dict.fromkeys(key for setting in settings for key in setting)
    return [key for key in keys if len({json.dumps(setting.get(key), default=str) for setting in settings}) > 1]


# --- figures ----------------------------------------------------------------------------------------------------------------


def estimate(values: Sequence[float]) -> Estimate | None:
    """
    :param values: one for each seed
    :return: the value of a single one; of several the interquartile mean, with rliable's stratified bootstrap
    """
    if not values:
        return None
    if len(values) == 1:
        return Estimate(values[0])
    point, interval = _bootstrap(np.array(values)[:, None, None])
    return Estimate(float(point[0]), float(interval[0, 0]), float(interval[1, 0]))


def _bootstrap(scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """
    :param scores: [seeds, tasks, frames]
    :return: interquartile means [frames], and their 95 % intervals [2, frames]
    """
    try:
        from rliable.library import get_interval_estimates
    except ImportError as error:
        raise MissingExtraError(f"several seeds of one setting need rliable ({error}): pip install 'sb3-hrl[plots]'") from None

    def iqm(sample: np.ndarray) -> np.ndarray:
        # rliable's aggregate_iqm for all frames at once.
        ordered = np.sort(sample.reshape(-1, sample.shape[-1]), axis=0)
        cut = len(ordered) // 4
        return ordered[cut : len(ordered) - cut].mean(axis=0)

    # rliable draws from NumPy's global generator, whatever it is told.
    state = np.random.get_state()
    np.random.seed(0)
    try:
        points, intervals = get_interval_estimates({"": scores}, iqm, reps=BOOTSTRAP_REPS)
    finally:
        np.random.set_state(state)
    return points[""], intervals[""]


class Row(NamedTuple):
    """
    A line of the table.

    :param name: what it says
    :param values: of each group; None where it is not known
    :param digits: after the point
    :param better: +1 if more is better, -1 if less is, 0 if neither
    :param unit: after the number
    """

    name: str
    values: list[Estimate | None]
    digits: int = 0
    better: int = 0
    unit: str = ""


def make_rows(groups: Sequence[Group]) -> dict[str, list[Row]]:
    """
    :param groups: what is compared
    :return: the table's rows, by section
    """

    def mean(key: str, scale: float = 1.0) -> list[Estimate | None]:
        return [Estimate(scale * float(np.mean(values))) if (values := group.values(key)) else None for group in groups]

    def reward(key: str) -> list[Estimate | None]:
        return [estimate(group.values(key)) for group in groups]

    hours, fps = mean("duration_hours"), mean("avg_fps")
    hourly = [None if value is None else Estimate(3600 * value.value) for value in fps]
    ratios = [None if value is None or fps[0] is None else value.value / fps[0].value for value in fps]
    first = groups[0].label
    sections = {
        "": [
            Row("Seeds", [Estimate(len(group.runs)) for group in groups]),
            Row("Duration (hours)", hours, 2 if any(value and value.value >= 0.1 for value in hours) else 4),
            Row("Total Timesteps", mean("total_timesteps"), better=1),
            Row("Total Updates", mean("total_updates")),
        ],
        "Performance Metrics": [
            Row("Average FPS", fps, better=1),
            Row(f"Speed-up (against {first})", _others(ratios), 2, unit="x"),
            Row("Final FPS", mean("final_fps"), better=1),
        ],
        "Reward Metrics": [
            Row("Initial Reward", reward("initial_reward"), 2),
            Row("Final Reward", reward("final_reward"), 2, better=1),
            Row("Best Reward", reward("best_reward"), 2, better=1),
        ],
        "Evaluation": [
            Row("Evaluation Reward", [estimate(group.evaluations("mean_reward")) for group in groups], 2, better=1),
            Row("Evaluation Length", [estimate(group.evaluations("mean_length")) for group in groups], 1),
            Row(
                "Success Rate (%)",
                [_scaled(estimate(group.evaluations("success_rate")), 100) for group in groups],
                1,
                better=1,
            ),
        ],
        "Resource Usage": [Row("Peak Memory (GB)", mean("peak_memory_gb"), 2, better=-1)],
        "Efficiency Metrics": [
            Row("Timesteps/Hour", hourly, better=1),
            Row(f"Efficiency Gain (against {first})", _others(ratios, gain=True), 1, unit="%"),
        ],
    }
    known = {
        title: [row for row in rows if any(value is not None for value in row.values)] for title, rows in sections.items()
    }
    return {title: rows for title, rows in known.items() if rows}


def _others(ratios: Sequence[float | None], gain: bool = False) -> list[Estimate | None]:
    """Of all groups but the first, which the others are set against."""
    known = [None if ratio is None else Estimate(100 * (ratio - 1) if gain else ratio) for ratio in ratios[1:]]
    return [None, *known]


def _scaled(value: Estimate | None, factor: float) -> Estimate | None:
    return None if value is None else Estimate(*(None if part is None else factor * part for part in value))  # type: ignore[arg-type]


def show(row: Row, index: int) -> str:
    """
    :param row: of the table
    :param index: which group
    :return: the cell
    """
    value = row.values[index]
    if value is None:
        return "-"
    text = f"{value.value:,.{row.digits}f}{row.unit}"
    return text if value.low is None else f"{text} [{value.low:,.{row.digits}f}, {value.high:,.{row.digits}f}]"


def winner(row: Row, labels: Sequence[str]) -> str:
    """
    :param row: of the table
    :param labels: of the groups
    :return: who is ahead, and by how much of the next; empty where nobody can be
    """
    known = [(row.better * value.value, index) for index, value in enumerate(row.values) if value is not None]
    if row.better == 0 or len(known) < 2:
        return ""
    known.sort(key=lambda item: -item[0])
    (best, index), (second, other) = known[:2]
    if np.isclose(best, second, rtol=0.005):
        return "even"
    a, b = row.values[index], row.values[other]
    assert a is not None
    assert b is not None
    if _overlap(a, b):
        return "undecided"
    # A share of a negative reward, or of none, says nothing.
    margin = f"{(a.value - b.value) / b.value:+.0%}" if min(a.value, b.value) > 0 else f"{a.value - b.value:+,.{row.digits}f}"
    return f"{labels[index]} ({margin})"


def _overlap(a: Estimate, b: Estimate) -> bool:
    if a.low is None or a.high is None or b.low is None or b.high is None:
        return False
    return a.low <= b.high and b.low <= a.high


def make_table(groups: Sequence[Group]) -> str:
    """
    :param groups: what is compared
    :return: the table as text
    """
    sections = make_rows(groups)
    labels = [group.label for group in groups]
    header = ["Metric", *labels, "Winner"]
    rows = [(title, [[row.name, *(show(row, i) for i in range(len(groups))), winner(row, labels)] for row in section])
            for title, section in sections.items()]  # fmt: skip
    cells = [header, *(row for _, section in rows for row in section)]
    widths = [max(len(row[i]) for row in cells) + 2 for i in range(len(header))]
    width = max(WIDTH, sum(widths))

    def line(row: Sequence[str]) -> str:
        return "".join(f"{cell:<{size}}" for cell, size in zip(row, widths, strict=True)).rstrip()

    out = ["=" * width, "TRAINING COMPARISON", "=" * width, line(header), "-" * width]
    for title, section in rows:
        if title:
            out += ["", title, "-" * width]
        out += [line(row) for row in section]
    return "\n".join([*out, "=" * width])


def conclude(groups: Sequence[Group]) -> str:
    """
    :param groups: what is compared
    :return: one sentence that says what came of it
    """
    rows = {row.name: row for section in make_rows(groups).values() for row in section}
    labels = [group.label for group in groups]
    if len(groups) == 1:
        return f"Conclusion: all runs have one setting ({labels[0]}); there is nothing to set it against."
    is_evaluated = all("mean_reward" in run.evaluation for group in groups for run in group.runs)
    names = ("Evaluation Reward", "Final Reward") if is_evaluated else ("Final Reward",)
    name = next((name for name in names if name in rows and None not in rows[name].values), None)
    parts = []
    if name is not None:
        order = sorted(range(len(groups)), key=lambda i: -rows[name].values[i].value)  # type: ignore[union-attr]
        shown = [f"{show(rows[name], i)} ({labels[i]})" for i in order]
        best, second = (rows[name].values[i] for i in order[:2])
        assert best is not None
        assert second is not None
        n_seeds = min(len(group.runs) for group in groups)
        higher = "higher" if len(groups) == 2 else "highest"
        if best.value == second.value:
            verdict = f"the {name.lower()} is even"
        elif n_seeds == 1:
            verdict = f"{labels[order[0]]} has the {higher} {name.lower()}, with one seed, which another may turn round"
        elif _overlap(best, second):
            verdict = f"the {name.lower()} is undecided, since the intervals over seeds overlap"
        else:
            verdict = f"{labels[order[0]]} has the {higher} {name.lower()}"
        parts.append(f"{verdict}: {' against '.join(shown)}")
    fps = rows.get("Average FPS")
    if fps is not None and None not in fps.values:
        order = sorted(range(len(groups)), key=lambda i: -fps.values[i].value)  # type: ignore[union-attr]
        fast, slow = (fps.values[i].value for i in (order[0], order[-1]))  # type: ignore[union-attr]
        if slow > 0:
            parts.append(f"{labels[order[0]]} is the fastest, {fast / slow:.2f} times as fast as {labels[order[-1]]}")
    return f"Conclusion: {'; '.join(parts) or 'too little was recorded to say anything'}."


def describe_settings(groups: Sequence[Group]) -> list[str]:
    """
    :param groups: what is compared
    :return: a line for each setting that differs
    """
    keys = _differing([group.runs[0].setting for group in groups])
    width = max((len(key) for key in keys), default=0)
    return [
        f"{key:<{width}}  " + " | ".join(f"{group.label}: {group.runs[0].setting.get(key, 'not set')}" for group in groups)
        for key in keys
    ]


def describe_notes(groups: Sequence[Group]) -> list[str]:
    """
    :param groups: what is compared
    :return: a line for each thing that is missing or damaged
    """
    notes = [f"{run.run.folder}: {note}" for group in groups for run in group.runs for note in run.notes]
    modes = {run.evaluation["deterministic"] for group in groups for run in group.runs if "deterministic" in run.evaluation}
    if len(modes) > 1:
        notes.append("some evaluations took deterministic actions, others drew them: evaluate all in one way")
    for group in groups:
        n_evaluated = sum(bool(run.evaluation) for run in group.runs)
        if 0 < n_evaluated < len(group.runs):
            notes.append(
                f"{group.label}: {n_evaluated} of {len(group.runs)} runs are evaluated: sb3-hrl evaluate RUN for the rest"
            )
    return notes


# --- curves -----------------------------------------------------------------------------------------------------------------


class Curve(NamedTuple):
    """
    A line of a plot, with a band if it stands for several seeds.

    :param label: its group's
    :param x: rising
    :param y: of the same length
    :param low: lower edge of the band, or None
    :param high: upper edge, or None
    """

    label: str
    x: list[float]
    y: list[float]
    low: list[float] | None = None
    high: list[float] | None = None


class Panel(NamedTuple):
    """
    :param title: of the plot
    :param x_label: with its unit
    :param y_label: with its unit
    :param curves: one for each group that has it
    """

    title: str
    x_label: str
    y_label: str
    curves: list[Curve]


Points = list[tuple[float, float]]


def make_panels(groups: Sequence[Group]) -> list[Panel]:
    """
    :param groups: what is compared
    :return: reward by steps, speed, loss, steps by wall clock, reward by wall clock
    """
    longest = max(metric.seconds for group in groups for run in group.runs for metric in run.metrics)
    scale, unit = next(
        (s, u) for s, u, least in ((3600, "hours", 7200), (60, "minutes", 120), (1, "seconds", 0)) if longest >= least
    )
    clock = f"wall clock ({unit})"

    def panel(title: str, x_label: str, y_label: str, points: Callable[[RunData], Points]) -> Panel:
        curves = [_curve(group.label, [points(run) for run in group.runs]) for group in groups]
        return Panel(title, x_label, y_label, [curve for curve in curves if curve is not None])

    def by_steps(*keys: str) -> Callable[[RunData], Points]:
        return lambda run: [(metric.step, value) for metric, value in _logged(run, keys)]

    def by_clock(key: str) -> Callable[[RunData], Points]:
        return lambda run: [(metric.seconds / scale, value) for metric, value in _logged(run, (key,))]

    reward = "episode reward (mean of 100)"
    return [
        panel("Episode reward by steps", "environment steps", reward, by_steps(REWARD)),
        panel("Training speed", clock, "environment steps per second", lambda run: _speed(run, scale)),
        panel("Policy loss", "environment steps", "policy loss (each algorithm's own)", by_steps(*LOSSES)),
        panel(
            "Steps against wall clock",
            clock,
            "environment steps",
            lambda run: [(m.seconds / scale, m.step) for m in run.metrics],
        ),
        panel("Episode reward by wall clock", clock, reward, by_clock(REWARD)),
    ]


def _logged(run: RunData, keys: Iterable[str]) -> list[tuple[Metric, float]]:
    """The first of the keys that the run has logged."""
    for key in keys:
        values = [(metric, metric.values[key]) for metric in run.metrics if isinstance(metric.values.get(key), int | float)]
        if values:
            return values
    return []


def _speed(run: RunData, scale: float) -> Points:
    """Steps per second in sixty stretches of the run: from one logging step to the next it would only flicker."""
    seconds = np.array([0.0, *(metric.seconds for metric in run.metrics)])
    steps = np.array([0.0, *(metric.step for metric in run.metrics)])
    grid = np.linspace(0, seconds[-1], min(61, len(seconds)))
    speed = np.diff(np.interp(grid, seconds, steps)) / np.maximum(np.diff(grid), 1e-9)
    return list(zip((grid[1:] / scale).tolist(), speed.tolist(), strict=True))


def _curve(label: str, runs: Sequence[Points]) -> Curve | None:
    runs = [points for points in runs if points]
    if not runs:
        return None
    if len(runs) == 1:
        thinned = runs[0][:: max(1, len(runs[0]) // 400)]
        if thinned[-1] != runs[0][-1]:
            thinned.append(runs[0][-1])
        x, y = zip(*thinned, strict=True)
        return Curve(label, list(x), list(y))
    # As far as all of them go.
    start, stop = max(points[0][0] for points in runs), min(points[-1][0] for points in runs)
    if stop <= start:
        return _curve(label, [max(runs, key=lambda points: points[-1][0])])
    grid = np.linspace(start, stop, GRID)
    scores = np.stack([np.interp(grid, *np.array(points).T) for points in runs])
    point, interval = _bootstrap(scores[:, None, :])
    return Curve(label, grid.tolist(), point.tolist(), interval[0].tolist(), interval[1].tolist())


# --- the command ------------------------------------------------------------------------------------------------------------


def run(args: argparse.Namespace) -> int:
    """
    :param args: what ``add_arguments`` asked for
    :return: the exit code
    """
    found = [run for folder in args.runs for run in expand(folder)] if args.runs else _latest(args.log_folder)
    folders = {run.folder.resolve(): run for run in found}
    env_ids = dict.fromkeys(run.env_id for run in folders.values())
    if len(env_ids) > 1:
        names = " and ".join(env_ids)
        raise UsageError(
            f"the runs are of different environments, {names}, whose rewards cannot be compared: name runs of one"
        )
    if len(folders) < 2:
        raise UsageError(f"one run ({next(iter(folders))}) cannot be compared: name at least two")
    if args.output.exists() and not args.output.is_dir():
        raise UsageError(f"--output: {args.output} is a file; name a folder")
    groups = group_runs([load_run(run) for run in folders.values()])
    report = make_report(groups)
    panels = make_panels(groups)
    args.output.mkdir(parents=True, exist_ok=True)
    from sb3_hrl.experiments import plots

    print(report)
    write_atomically(args.output / "comparison_report.txt", report + "\n")
    (env_id,) = env_ids
    has_bands = any(len(group.runs) > 1 for group in groups)
    legend = "Lines are the interquartile mean of the seeds, bands its 95% interval." if has_bands else ""
    plots.draw(panels[:4], args.output / "comparison.png", env_id, legend)
    plots.draw([panels[0], panels[4]], args.output / "learning_curves.png", env_id, legend)
    labels = [group.label for group in groups]
    sections = {
        title: [[row.name, *(show(row, i) for i in range(len(groups))), winner(row, labels)] for row in rows]
        for title, rows in make_rows(groups).items()
    }
    page = plots.make_page(
        f"{env_id}: {' against '.join(labels)}",
        conclude(groups),
        legend,
        ["Metric", *labels, "Winner"],
        sections,
        panels,
        {"Settings that differ": describe_settings(groups), "Notes": describe_notes(groups), "Runs": _describe_runs(groups)},
    )
    write_atomically(args.output / "comparison.html", page)
    files = "comparison_report.txt, comparison.png, learning_curves.png, comparison.html"
    print(f"\nWritten to {args.output}: {files}")
    return 0


def _latest(log_folder: Path) -> list[Run]:
    runs = latest_runs(log_folder)
    newest = [run for run in runs if run.env_id == runs[0].env_id]
    settings: dict[str, Run] = {}
    for run in newest:
        settings.setdefault(json.dumps(_setting(run), sort_keys=True, default=str), run)
    return list(settings.values())[::-1]


def _describe_runs(groups: Sequence[Group]) -> list[str]:
    return [f"{group.label}: {run.run.folder}, seed {run.seed}" for group in groups for run in group.runs]


def make_report(groups: Sequence[Group]) -> str:
    """
    :param groups: what is compared
    :return: the whole text report
    """
    parts = [make_table(groups), "", conclude(groups)]
    for title, lines in (
        ("SETTINGS THAT DIFFER", describe_settings(groups)),
        ("NOTES", describe_notes(groups)),
        ("RUNS", _describe_runs(groups)),
    ):
        if lines:
            parts += ["", title, "-" * WIDTH, *lines]
    return "\n".join(parts)
