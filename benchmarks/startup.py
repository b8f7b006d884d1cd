"""
What the start-up hook costs.

    python -m benchmarks.startup [--pairs 200]

Two figures. Interpreter start with and without ``import _sb3_hrl_boot``, interleaved, in processes that differ in nothing
else (``-S``, so that no other start-up file adds its noise; the module is compiled before, as pip does when it installs). And,
for the interpreter that runs this, what ``-X importtime`` says of the module in its own ``site-packages``; in an editable
install that is mostly what the editable finder imports.
"""

import argparse
import compileall
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BOOT = Path(__file__).parents[1] / "startup/_sb3_hrl_boot.py"


def start_seconds(code: str) -> float:
    """
    :param code: what the process runs
    :return: wall-clock seconds of the whole process
    """
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-S", "-c", code], check=True)
    return time.perf_counter() - begin


def installed_milliseconds() -> float:
    """
    :return: milliseconds of the hook's import, with all that it imports, when this interpreter starts
    """
    line = [sys.executable, "-X", "importtime", "-c", "pass"]
    log = subprocess.run(line, check=True, capture_output=True, text=True).stderr
    (entry,) = [entry for entry in log.splitlines() if entry.rstrip().endswith("_sb3_hrl_boot")]
    return float(entry.split("|")[1]) / 1e3


def main() -> None:
    """Measure, and print medians."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("--pairs", type=int, default=200)
    n_pairs = parser.parse_args().pairs
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(BOOT, folder)
        compileall.compile_dir(folder, quiet=1)
        prelude = f"import sys, os; sys.path.insert(0, {folder!r})"
        pairs = [(start_seconds(prelude), start_seconds(f"{prelude}; import _sb3_hrl_boot")) for _ in range(n_pairs)]
    without, with_hook = (1e3 * statistics.median(side) for side in zip(*pairs, strict=True))
    difference = 1e3 * statistics.median(second - first for first, second in pairs)
    print(f"interpreter start, median of {n_pairs} interleaved pairs")
    print(f"  without the hook   {without:7.2f} ms")
    print(f"  with the hook      {with_hook:7.2f} ms")
    print(f"  median difference  {difference:7.2f} ms")
    installed = statistics.median(installed_milliseconds() for _ in range(n_pairs))
    print(f"import in this installation, median of {n_pairs}: {installed:.2f} ms")


if __name__ == "__main__":
    main()
