"""
``python -m sb3_hrl.zoo train --algo hppo ...``: a zoo command with the plug-ins, where the start-up hook is off or absent.

It serves ``SB3_HRL_NO_ZOO_HOOK=1``, and installs whose ``.pth`` files Python does not read (``pip install --target``).
"""

import os
import runpy
import sys

COMMANDS = {
    "train": "rl_zoo3.train",
    "enjoy": "rl_zoo3.enjoy",
    "record_video": "rl_zoo3.record_video",
    "record_training": "rl_zoo3.record_training",
    "plot_train": "rl_zoo3.plots.plot_train",
    "plot_from_file": "rl_zoo3.plots.plot_from_file",
    "all_plots": "rl_zoo3.plots.all_plots",
}


def main() -> None:
    """Run the zoo command named by the first argument with the remaining ones."""
    if len(sys.argv) < 2 or sys.argv[1] not in COMMANDS:
        print(f"usage: python -m sb3_hrl.zoo {{{','.join(COMMANDS)}}} ...", file=sys.stderr)
        raise SystemExit(2)
    import _sb3_hrl_boot  # type: ignore[import-untyped]

    _sb3_hrl_boot.install(force=True)
    # For the commands that start another zoo command.
    os.environ.pop("SB3_HRL_NO_ZOO_HOOK", None)
    del sys.argv[0]
    runpy.run_module(COMMANDS[sys.argv[0]], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
