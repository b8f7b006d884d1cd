"""
Two trainings on Procgen side by side, at equal steps and at equal wall clock.

    python -m benchmarks.procgen.beside benchmarks/results/procgen_score_hppo_fruitbot.json \\
        benchmarks/results/procgen_score_impala_fruitbot.json [--first-rate STEPS_PER_SECOND]

The files are those of ``benchmarks.procgen.score``. The second's share of the first is that of what it has gained since the
beginning, where returns may be negative. Seconds are comparable if both had the same part of the same machine; if the first
ran elsewhere, give its rate on the second's.
"""

import argparse
import json
import statistics
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

N_ROWS = 8
# How many of the first points tell where a training began, and how much of the time is averaged before each mark.
N_FIRST, SHARE = 3, 0.1


class Point(NamedTuple):
    """One update: steps and seconds since the beginning, and the mean return of the last hundred episodes."""

    n_timesteps: int
    seconds: float
    mean_return: float


def mean_before(points: list[Point], key: str, mark: float, width: float) -> float:
    """
    :param points: of a training
    :param key: ``n_timesteps`` or ``seconds``
    :param mark: where
    :param width: of what is averaged, up to the last point before the mark
    :return: the mean return
    """
    last = max(getattr(point, key) for point in points if getattr(point, key) <= mark * 1.001)
    return statistics.fmean(point.mean_return for point in points if last - width < getattr(point, key) <= last)


def compare(first: list[Point], second: list[Point], key: str) -> list[tuple[float, float, float, float]]:
    """
    :param first: curve of a training
    :param second: of another
    :param key: ``n_timesteps`` or ``seconds``
    :return: for some marks: the mark, both returns, and the second's gain as a share of the first's
    """
    end = min(getattr(first[-1], key), getattr(second[-1], key))
    begin = statistics.fmean(point.mean_return for curve in (first, second) for point in curve[:N_FIRST])
    rows = []
    for index in range(1, N_ROWS + 1):
        mark = end * index / N_ROWS
        here, there = (mean_before(curve, key, mark, SHARE * end) for curve in (first, second))
        rows.append((mark, here, there, (there - begin) / (here - begin)))
    return rows


def main() -> None:
    """Compare."""
    parser = argparse.ArgumentParser(description="two trainings on Procgen side by side")
    parser.add_argument("files", nargs=2, type=Path, metavar="FILE")
    parser.add_argument("--first-rate", type=float, default=None, metavar="STEPS_PER_SECOND")
    args = parser.parse_args()
    first, second = (json.loads(file.read_text()) for file in args.files)
    here_curve, there_curve = ([Point(**point) for point in report["curve"]] for report in (first, second))
    if args.first_rate is not None:
        here_curve = [point._replace(seconds=point.n_timesteps / args.first_rate) for point in here_curve]
    for key, unit, title in (("n_timesteps", 1e3, "thousand steps"), ("seconds", 60.0, "minutes")):
        table = Table(title, first["algo"], second["algo"], "share of the gain", title=f"{first['game']}, easy, all levels")
        for mark, here, there, share in compare(here_curve, there_curve, key):
            table.add_row(f"{mark / unit:,.0f}", f"{here:.2f}", f"{there:.2f}", f"{share:.0%}")
        Console(width=100).print(table)


if __name__ == "__main__":
    main()
