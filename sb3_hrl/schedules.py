"""Schedules as the zoo's YAML writes them, for the arguments that the zoo itself leaves as text."""

from typing import Any


def read_schedule(value: Any) -> Any:
    """
    :param value: a number, a function of the remaining progress, or text such as ``3e-4`` or ``lin_3e-4`` (linearly to zero)
    :return: a number or a function
    """
    if not isinstance(value, str):
        return value
    start = float(value.removeprefix("lin_"))
    return (lambda progress_remaining: progress_remaining * start) if value.startswith("lin_") else start
