"""
What the start-up hook costs: interpreter start with and without it, interleaved.

    python -m benchmarks.startup [--pairs 200]

The two processes differ in nothing but ``import _sb3_hrl_boot``; both run with ``-S -c``, so that no other start-up file
adds its noise. The module's own import time, measured inside a process, is printed beside it.
"""

import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path

STARTUP = Path(__file__).parents[1] / "startup"
PRELUDE = f"import sys, os; sys.path.insert(0, {str(STARTUP)!r})"


def start_seconds(code: str) -> float:
    """
    :param code: what the process runs
    :return: wall-clock seconds of the whole process
    """
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-S", "-c", code], check=True)
    return time.perf_counter() - begin


def import_milliseconds() -> float:
    """
    :return: milliseconds of the import itself, in a fresh process
    """
    code = f"{PRELUDE}; import time; t = time.perf_counter(); import _sb3_hrl_boot; print((time.perf_counter() - t) * 1e3)"
    return float(subprocess.run([sys.executable, "-S", "-c", code], check=True, capture_output=True, text=True).stdout)


def main() -> None:
    """Measure, and print medians."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("--pairs", type=int, default=200)
    n_pairs = parser.parse_args().pairs
    pairs = [(start_seconds(PRELUDE), start_seconds(f"{PRELUDE}; import _sb3_hrl_boot")) for _ in range(n_pairs)]
    without, with_hook = (1e3 * statistics.median(side) for side in zip(*pairs, strict=True))
    difference = 1e3 * statistics.median(second - first for first, second in pairs)
    print(f"interpreter start, median of {n_pairs} interleaved pairs")
    print(f"  without the hook   {without:7.2f} ms")
    print(f"  with the hook      {with_hook:7.2f} ms")
    print(f"  median difference  {difference:7.2f} ms")
    print(f"import alone, median of {n_pairs}: {statistics.median(import_milliseconds() for _ in range(n_pairs)):.2f} ms")


if __name__ == "__main__":
    main()
