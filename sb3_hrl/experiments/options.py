"""Values of options that several commands take."""

import argparse
from typing import Any


def count(text: str) -> int:
    """
    :param text: a whole number >= 0
    :return: the number
    """
    return _whole(text, 0)


def positive(text: str) -> int:
    """
    :param text: a whole number >= 1
    :return: the number
    """
    return _whole(text, 1)


def _whole(text: str, least: int) -> int:
    if not (text.isascii() and text.isdigit() and int(text) >= least):
        raise argparse.ArgumentTypeError(f"expected a whole number >= {least}, got {text!r}")
    return int(text)


def key_value(text: str) -> tuple[str, Any]:
    """
    :param text: ``key:value``, the value as Python writes it, as in the zoo's own options
    :return: both
    """
    import rl_zoo3.utils  # not at the top: the start-up hook acts on this import

    key, colon, value = text.partition(":")
    try:
        return key, eval(value, dict(vars(rl_zoo3.utils)))
    except Exception as error:
        reason = f"{value!r} is no Python value ({type(error).__name__})" if colon else "the colon is missing"
        example = "n_steps:128 or policy:\"'MlpPolicy'\""
        raise argparse.ArgumentTypeError(f"expected KEY:VALUE such as {example}, got {text!r}: {reason}") from None
