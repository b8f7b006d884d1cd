"""What an extra of this package brings, and which environments need one."""

import importlib.util
from typing import NamedTuple

from sb3_hrl.errors import MissingExtraError


class Extra(NamedTuple):
    """
    An extra of this package, or of a plug-in's.

    :param requirement: what pip is to install
    :param name: the extra's name
    :param module: a top-level module that comes with it
    :param brings: what it brings, in the plural
    """

    requirement: str
    name: str
    module: str
    brings: str

    def require(self, what: str) -> None:
        """
        Look for the extra, and import nothing.

        :param what: what needs it
        :raises MissingExtraError: if it is not installed
        """
        if importlib.util.find_spec(self.module) is None:
            raise MissingExtraError(
                f'{what} needs {self.brings}, which come with the extra "{self.name}": pip install "{self.requirement}"'
            )


MYO = Extra("sb3-hrl[myo]", "myo", "myo_sim", "MyoSim's models")

_needed_by: dict[str, Extra] = {}


def declare(env_id: str, extra: Extra) -> None:
    """
    Say that an environment needs an extra; for the small modules that register ids.

    :param env_id: the environment's id
    :param extra: what it needs
    """
    _needed_by[env_id] = extra


def check_extra(env_id: str) -> None:
    """
    Check that what an environment needs is installed, before anything is read or built.

    :param env_id: any environment's id
    :raises MissingExtraError: that names the extra
    """
    if env_id in _needed_by:
        _needed_by[env_id].require(env_id)
