"""
Makes rl-zoo3 know the plug-ins of sb3-hrl, at the price of one meta-path finder.

``SB3_HRL.pth`` imports this module when the interpreter starts (from Python 3.15 on ``SB3_HRL.start`` calls ``install``).
Nothing else happens until one of four rl_zoo3 modules is imported; then ``sb3_hrl.zoo.hook.after_import`` gets that module.
``SB3_HRL_NO_ZOO_HOOK=1`` switches it off; ``python -m sb3_hrl.zoo train ...`` then does the same on request.
"""

import os
import sys

HOOKED_MODULES = ("rl_zoo3.utils", "rl_zoo3.hyperparams_opt", "rl_zoo3.import_envs", "rl_zoo3.exp_manager")


class ZooFinder:
    """Finds nothing itself: lets the other finders find a hooked module, then adds the call after its execution."""

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name not in HOOKED_MODULES:
            return None
        for finder in sys.meta_path:
            if finder is cls or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None and spec.loader is not None:
                spec.loader = HookedLoader(spec.loader)  # type: ignore[assignment]
                return spec
        return None


class HookedLoader:
    """The loader that was found, with the call after its execution. A failure of ours must not cost the import of rl_zoo3."""

    def __init__(self, loader):
        self.loader = loader

    def __getattr__(self, name):
        return getattr(self.__dict__["loader"], name)

    def create_module(self, spec):
        return self.loader.create_module(spec)

    def exec_module(self, module):
        self.loader.exec_module(module)
        try:
            from sb3_hrl.zoo.hook import after_import

            after_import(module)
        except Exception as error:
            print("sb3-hrl cannot extend rl_zoo3:", error, "(SB3_HRL_NO_ZOO_HOOK=1 does without)", file=sys.stderr)


def install(force=False):
    """
    Put the finder in front, once.

    :param force: install it even if ``SB3_HRL_NO_ZOO_HOOK`` is set
    """
    if ZooFinder in sys.meta_path or (os.environ.get("SB3_HRL_NO_ZOO_HOOK", "0") not in ("", "0") and not force):
        return
    sys.meta_path.insert(0, ZooFinder)


install()
