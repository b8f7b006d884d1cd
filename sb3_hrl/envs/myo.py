"""MyoSim's models, by the names that the package ``myo_sim`` has for them: ``myo_sim:myoelbow``. An extra, ``[myo]``."""

import warnings

import numpy as np

from sb3_hrl.extras import MYO

PREFIX = "myo_sim:"


def compile_myo_model(name: str, n_memory: int = 0) -> bytes:
    """
    Compile one of MyoSim's models, whether it is a file of the package or composed by it of several.

    :param name: with the prefix, such as ``myo_sim:myolegs``
    :param n_memory: how many numbers of a task's own it shall have room for
    :return: the compiled model, as the bytes of an MJB file
    :raises MissingExtraError: if the package is not installed
    :raises ValueError: if it has no such model, or MuJoCo cannot compile it
    """
    MYO.require(name)
    import mujoco
    import myo_sim

    with warnings.catch_warnings():
        # Of parts that are attached without a prefix, which is MyoSim's own way.
        warnings.filterwarnings("ignore", message="Attaching a spec with an empty prefix")
        spec = myo_sim.load_spec(name.removeprefix(PREFIX))
        spec.nuserdata = max(spec.nuserdata, n_memory)
        model = spec.compile()
    buffer = np.empty(mujoco.mj_sizeModel(model), np.uint8)
    mujoco.mj_saveModel(model, None, buffer)
    return buffer.tobytes()
