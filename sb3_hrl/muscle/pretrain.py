"""What a muscle network can learn before the policy has done anything: random poses of the body."""

import mujoco
import numpy as np
from tqdm.auto import tqdm

from sb3_hrl.muscle.interface import MuscleInterface
from sb3_hrl.muscle.learner import MuscleLearner
from sb3_hrl.muscle.settings import MuscleSettings
from sb3_hrl.muscle.stable_pd import StablePd

# Reading the muscles costs more than a torque, and one pose may serve several.
_TARGETS_PER_POSE = 4


def random_tuples(
    interface: MuscleInterface,
    settings: MuscleSettings,
    n_tuples: int,
    seed: int = 0,
    speed: float = 1.0,
    progress_bar: bool = False,
) -> np.ndarray:
    """
    What stable PD would ask for in random poses without contacts. A quarter of the poses lie anywhere in the joints'
    ranges, the others where actions of -1 to 1 put the targets; each pose has several targets around it, half as far as an
    action of one.

    :param interface: the model's muscles
    :param settings: how they are driven
    :param n_tuples: how many
    :param seed: of the poses, velocities and targets
    :param speed: standard deviation of the velocities, rad/s
    :param progress_bar: whether to show how far it is
    :return: ``[n_tuples, P + D]`` float32: ``packed`` and ``desired_torque``, Nm
    """
    settings = settings.resolve(interface)
    pd = StablePd(interface, np.array(settings.stiffness), np.array(settings.damping))
    nominal, reach = np.array(settings.nominal), np.array(settings.scale)
    data, rng = mujoco.MjData(interface.model), np.random.default_rng(seed)
    tuples = np.empty((n_tuples, interface.n_packed + interface.n_coords), np.float32)
    for first in tqdm(range(0, n_tuples, _TARGETS_PER_POSE), "random poses", disable=not progress_bar, leave=False):
        interface.random_state(data, rng, speed)
        if first // _TARGETS_PER_POSE % 4:
            near = nominal + reach * rng.uniform(-1.0, 1.0, interface.n_coords)
            data.qpos[interface.positions] = np.clip(near, interface.joint_low, interface.joint_high)
            interface.couple(data)
        mujoco.mj_step1(interface.model, data)
        state = interface.read(data)
        rows = tuples[first : first + _TARGETS_PER_POSE]
        rows[:, : interface.n_packed] = state.packed
        for row in rows:
            target = data.qpos[interface.positions] + 0.5 * reach * rng.standard_normal(interface.n_coords)
            target = np.clip(target, interface.joint_low, interface.joint_high)
            row[interface.n_packed :] = pd.torque(data, target) - state.passive_torque
    return tuples


def pretrain(
    learner: MuscleLearner, tuples: np.ndarray, n_epochs: int = 20, learning_rate: float = 5e-3, progress_bar: bool = False
) -> float:
    """
    Fit a network to tuples, with a learning rate that falls to zero, and let its reservoir remember them.

    :param learner: whose network
    :param tuples: ``[N, P + D]``
    :param n_epochs: how often each is used
    :param learning_rate: at the beginning
    :param progress_bar: whether to show how far it is
    :return: the mean loss of the last epoch
    """
    loss = float("nan")
    for epoch in tqdm(range(n_epochs), "muscles", disable=not progress_bar, leave=False):
        loss = learner.fit(tuples, 1, learning_rate * (1 - epoch / n_epochs))
    learner.remember(tuples)
    return loss
