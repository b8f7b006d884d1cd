"""
Actions that carry what the model knows to the environments.

``enjoy``, ``record_video`` and ``evaluate_policy`` call ``predict`` and hand the result to ``env.step``, often on an
environment that the model has never met. An ndarray subclass is the one thing that passes through VecNormalize,
VecFrameStack, Dummy, Subproc and Monitor down to the wrapper that wants it, with no global and no extra call.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from sb3_hrl.muscle import Muscles


# The key of an info for what the muscles' learner learns from: [P + D] float32, of the decision's first step.
MUSCLE_SAMPLE = "muscle_sample"


class Carried(NamedTuple):
    """
    What travels with an action.

    :param hold_decisions: how far training has come in annealing the action hold, in decisions of one environment; None where
        it had no hold
    :param muscles: what turns torques into activations; None for a model without muscles
    """

    hold_decisions: int | None = None
    muscles: "Muscles | None" = None


class CarriedActions(np.ndarray):
    """Actions of a batch (or of one environment) with a ``Carried`` record; equal to a plain array in all else."""

    carried: Carried | None

    def __array_finalize__(self, source: Any) -> None:
        self.carried = getattr(source, "carried", None)

    def __getitem__(self, index: Any) -> Any:
        item = super().__getitem__(index)
        # One discrete action would come out as a NumPy scalar and lose the record: keep it as a 0-d array.
        return item if isinstance(item, CarriedActions) else carry(np.asarray(item), self.carried)

    def __hash__(self) -> int:  # type: ignore[override]
        # One discrete action may be the key of a dict, as a NumPy scalar may.
        if self.ndim:
            raise TypeError("unhashable type: 'CarriedActions'")
        return hash(self.item())

    def __reduce__(self) -> Any:
        # SubprocVecEnv pickles each action; ndarray's own pickle would drop the record.
        return carry, (self.view(np.ndarray), self.carried)


def carry(actions: np.ndarray, carried: Carried | None) -> CarriedActions:
    """
    :param actions: plain actions
    :param carried: the record
    :return: a view of the actions that carries the record
    """
    view = np.asarray(actions).view(CarriedActions)
    view.carried = carried
    return view


def unpack(action: Any) -> tuple[Any, Carried | None]:
    """
    :param action: what ``env.step`` got
    :return: the plain action, and the record if it carried one
    """
    if not isinstance(action, CarriedActions):
        return action, None
    plain = action.view(np.ndarray)
    return (plain if plain.ndim else plain[()]), action.carried
