"""The errors that are not bad input (bad input is a ``ValueError``)."""


class NativeError(RuntimeError):
    """A native failure or a broken invariant of the native module. Never a ``ValueError``: Optuna would prune on it."""


class MissingExtraError(ImportError):
    """Something that an extra of this package brings is not installed; the message names the extra."""


class PluginError(RuntimeError):
    """A plug-in that cannot be used: it does not load, or two distributions claim its name."""
