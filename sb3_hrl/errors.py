"""The errors that are not bad input to a function (that is a ``ValueError``)."""


class UsageError(Exception):
    """Something that the user of a command has to mend. The message is one sentence, with the remedy."""


class NativeError(RuntimeError):
    """A native failure or a broken invariant of the native module. Never a ``ValueError``: Optuna would prune on it."""


class MissingExtraError(ImportError):
    """Something that an extra of this package brings is not installed; the message names the extra."""


class PluginError(RuntimeError):
    """A plug-in that cannot be used: it does not load, or two distributions claim its name."""
