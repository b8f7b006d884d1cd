"""The short form of ``python -m benchmarks.soak``."""

import subprocess
import sys
from pathlib import Path

from benchmarks.soak import N_CHECKPOINTS, SLACK_KIB, Usage, has_grown, read_usage


def test_fifty_thousand_steps_grow_nothing() -> None:
    # In a process of its own: what other tests have left behind is nobody's growth.
    command = [sys.executable, "-m", "benchmarks.soak", "--steps", "50000"]
    result = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert result.returncode == 0, result.stdout + result.stderr
    lines = result.stdout.splitlines()
    assert len(lines) == N_CHECKPOINTS + 1
    assert lines[-1] == "it has not grown"


def test_growth_is_seen() -> None:
    usage = read_usage()
    assert min(usage) > 0
    assert not has_grown([usage, usage._replace(rss_kib=usage.rss_kib + SLACK_KIB)])
    for larger in (usage.rss_kib + SLACK_KIB + 1, 0, 0), (0, usage.n_threads + 1, 0), (0, 0, usage.n_fds + 1):
        assert has_grown([usage, Usage(*larger)])
