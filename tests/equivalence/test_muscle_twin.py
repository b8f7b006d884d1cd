"""The native controller and its readable twin give the same numbers, to the last bit."""

from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest

from sb3_hrl import envs, native
from sb3_hrl.envs.engine import Engine
from sb3_hrl.errors import NativeError
from sb3_hrl.muscle import ACTIVATIONS, MuscleControl, MuscleInterface, MuscleSettings, QpLowLevel, TorqueLowLevel
from tests.conftest import missing
from tests.muscle_models import ARM, LEG, muscle_task

N_STEPS = 40
FRAME_SKIP = 5
CASES = [
    *((("muscle_hrl", activation), low_level) for activation in ACTIVATIONS for low_level in ("qp", "torque")),
    *((("muscle_e2e", activation), None) for activation in ACTIVATIONS),
    (("torque", "direct"), None),
]


def low_levels(name: str | None) -> tuple[Any, Any]:
    core = native.load()
    if name == "qp":
        return core.QpLowLevel(80.0, 1e-3), QpLowLevel(80.0, 1e-3)
    return (core.TorqueLowLevel(), TorqueLowLevel()) if name == "torque" else (None, None)


class Twin:
    """One environment in plain Python."""

    def __init__(self, interface: MuscleInterface, settings: MuscleSettings, low_level: Any, seed: int) -> None:
        self.model = interface.model
        self.data = mujoco.MjData(self.model)
        self.control = MuscleControl(interface, settings, FRAME_SKIP)
        self.control.set_muscles(low_level)
        self.control.seed(seed)

    def reset(self, qpos: np.ndarray, qvel: np.ndarray) -> None:
        mujoco.mj_resetData(self.model, self.data)
        self.data.qpos[:], self.data.qvel[:] = qpos, qvel
        mujoco.mj_forward(self.model, self.data)
        self.control.reset(self.data)

    def step(self, action: np.ndarray, n_hold: int = 1) -> None:
        for held in range(n_hold):
            self.control.begin_step(self.data, action)
            for substep in range(FRAME_SKIP):
                mujoco.mj_step1(self.model, self.data)
                self.control.before_substep(self.data, substep)
                mujoco.mj_step2(self.model, self.data)
            if held == 0:
                self.sample = self.control.sample.copy()

    def obs(self) -> np.ndarray:
        data = self.data
        return np.concatenate([data.qpos, data.qvel, data.act, data.ctrl, data.qfrc_constraint])


def controller_state(engine: Engine, interface: MuscleInterface) -> np.ndarray:
    """The last numbers of a state are what the muscles could do when they were last read."""
    n = interface.n_coords * interface.n_muscles + interface.n_packed + 3 * interface.n_coords
    return np.frombuffer(engine.get_state(0)[-8 * n :])


@pytest.mark.parametrize("xml", [ARM, LEG], ids=["arm", "leg"])
@pytest.mark.parametrize(("mode", "low_level"), CASES, ids=lambda case: "-".join(case) if isinstance(case, tuple) else case)
def test_native_equals_python(tmp_path: Path, xml: str, mode: tuple[str, str], low_level: str | None) -> None:
    settings = MuscleSettings(*mode, stiffness=250.0, scale=0.6, has_cascade=low_level == "qp")
    task, interface = muscle_task(tmp_path, xml, settings, FRAME_SKIP)
    fast, slow = low_levels(low_level)
    engine = Engine(task, 1, seeds=[7])
    if fast is not None:
        engine.set_low_level(fast)
    twin = Twin(interface, settings, slow, seed=7)
    engine.reset()
    twin.reset(*engine.qpos_qvel(0))
    np.testing.assert_array_equal(controller_state(engine, interface), np.concatenate([a.ravel() for a in twin.control.state]))
    rng = np.random.default_rng(3)
    activations = []
    for t in range(N_STEPS):
        action = rng.uniform(task.action_space.low, task.action_space.high).astype(np.float32)
        n_hold = 1 + t % 3
        result = engine.step(action[None], np.array([n_hold], np.int32))
        twin.step(action, n_hold)
        assert not result.unstable[0]
        np.testing.assert_array_equal(result.obs[0], twin.obs())
        assert result.obs.tobytes() == twin.obs().tobytes()  # the sign of zero as well
        np.testing.assert_array_equal(result.samples[0], twin.sample)
        assert engine.summary(0) == twin.control.summary
        read = np.concatenate([a.ravel() for a in twin.control.state])
        np.testing.assert_array_equal(controller_state(engine, interface), read)
        activations.append(twin.data.act.copy())
    is_moving = np.ptp(activations, axis=0).max() > 0.1
    assert is_moving == (low_level != "torque" and mode[0] != "torque")  # or the comparison would be one of zeros
    if mode[0] == "muscle_hrl":
        assert result.samples.shape == (1, interface.n_packed + interface.n_coords)
        assert np.count_nonzero(result.samples) > interface.n_packed
    else:
        assert result.samples.shape == (1, 0)


def test_a_bit_of_stiffness_would_be_seen(tmp_path: Path) -> None:
    """What would make the comparison fail."""
    task, interface = muscle_task(tmp_path, ARM, MuscleSettings(stiffness=250.0), FRAME_SKIP)
    fast, slow = low_levels("qp")
    engine = Engine(task, 1, seeds=[7])
    engine.set_low_level(fast)
    twin = Twin(interface, MuscleSettings(stiffness=float(np.nextafter(250.0, 251.0))), slow, seed=7)
    engine.reset()
    twin.reset(*engine.qpos_qvel(0))
    for _ in range(5):
        result = engine.step(np.full((1, 2), 0.3, np.float32))
        twin.step(np.full(2, 0.3, np.float32))
    assert not np.array_equal(result.obs[0], twin.obs())
    np.testing.assert_allclose(result.obs[0], twin.obs(), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("cut", [1, 8, 23])
def test_a_state_continues_exactly(tmp_path: Path, cut: int) -> None:
    """Cut anywhere, restored in another engine: constraint forces, random substeps and what the muscles were read as."""
    settings = MuscleSettings(activation="inverted", stiffness=250.0)
    task, interface = muscle_task(tmp_path, LEG, settings, FRAME_SKIP)
    rng = np.random.default_rng(cut)
    actions = rng.uniform(-1, 1, (40, 2, interface.n_coords)).astype(np.float32)
    engine, other = Engine(task, 2, seeds=[7, 8]), Engine(task, 1, seeds=[99])
    for one in (engine, other):
        one.set_low_level(low_levels("qp")[0])
    engine.reset()
    for t in range(cut):
        engine.step(actions[t])
    other.set_state(0, engine.get_state(1))
    assert other.get_state(0) == engine.get_state(1)
    assert other.summary(0) == engine.summary(1)
    seen_constraint = False
    for t in range(cut, 40):
        result, restored = engine.step(actions[t]), other.step(actions[t, 1:])
        np.testing.assert_array_equal(restored.obs[0], result.obs[1])
        np.testing.assert_array_equal(restored.samples[0], result.samples[1])
        seen_constraint = seen_constraint or bool(np.abs(result.obs[1, -interface.model.nv :]).max() > 1)
    assert seen_constraint  # the floor was felt, so its forces had to be restored


@pytest.mark.parametrize("n_threads", [1, 2, 3])
def test_threads_change_nothing(tmp_path: Path, n_threads: int) -> None:
    task, interface = muscle_task(tmp_path, LEG, MuscleSettings(), FRAME_SKIP)
    engines = [Engine(task, 5, n, seeds=range(5)) for n in (1, n_threads)]
    rng = np.random.default_rng(0)
    for engine in engines:
        engine.set_low_level(low_levels("qp")[0])
        engine.reset()
    for _ in range(10):
        actions = rng.uniform(-1, 1, (5, interface.n_coords)).astype(np.float32)
        first, second = (engine.step(actions) for engine in engines)
        for name in ("obs", "samples", "rewards"):
            np.testing.assert_array_equal(getattr(first, name), getattr(second, name))


def test_without_muscles_it_refuses_to_step(tmp_path: Path) -> None:
    task, _ = muscle_task(tmp_path, ARM, MuscleSettings(), FRAME_SKIP)
    engine = Engine(task, 1, seeds=[0])
    engine.reset()
    actions = np.zeros((1, 2), np.float32)
    sentence = "this environment is driven by a model's muscles and has none: load the model with HPPO and let it act here, or"
    with pytest.raises(NativeError, match=sentence):
        engine.step(actions)
    engine.set_low_level(low_levels("qp")[0])
    engine.step(actions)  # the refusal has broken nothing
    engine.set_low_level(None)
    with pytest.raises(NativeError, match=sentence):
        engine.step(actions)


def test_a_task_without_muscles_takes_none() -> None:
    from sb3_hrl.envs.task import load_task

    engine = Engine(load_task("Hopper-v5"), 1)
    with pytest.raises(ValueError, match="this task has no muscles"):
        engine.set_low_level(low_levels("qp")[0])
    with pytest.raises(ValueError, match="this task has no muscles"):
        engine.summary(0)


def test_a_rollout_leaves_the_samples_of_its_steps(tmp_path: Path) -> None:
    """The samples of a native rollout are those that its own actions leave step by step."""
    task, interface = muscle_task(tmp_path, ARM, MuscleSettings(), FRAME_SKIP)
    n_steps, n_envs, core = 12, 3, native.load()
    rng = np.random.default_rng(0)
    n_obs, n_actions = task.observation_space.shape[0], interface.n_coords
    layers = [
        (0.1 * rng.standard_normal((n_out, n_obs)).astype(np.float32), np.zeros(n_out, np.float32), "identity", 0.0)
        for n_out in (n_actions, 1)
    ]
    policy = core.MlpPolicy([layers[0]], [layers[1]], "gaussian", np.ones(n_actions, np.float32))
    engines = [Engine(task, n_envs, n_threads, seeds=range(n_envs)) for n_threads in (2, 1)]
    for engine in engines:
        engine.set_low_level(low_levels("qp")[0])
    observations = np.zeros((n_steps, n_envs, n_obs))
    observations[0] = engines[0].reset()[0]
    engines[1].reset()
    floats = [np.zeros((n_steps, n_envs), np.float32) for _ in range(3)]
    actions = np.zeros((n_steps, n_envs, n_actions), np.float32)
    samples = np.zeros((n_steps, n_envs, engines[0].n_sample), np.float32)
    engines[0].collect_rollout(
        policy,
        shard_size=2,
        n_hold=None,
        gamma=0.99,
        normalization=None,
        noise_seed=1,
        first_decision=0,
        n_unstable_in_a_row=np.zeros(n_envs, np.int64),
        max_unstable_in_a_row=10,
        observations=observations,
        actions=actions,
        rewards=floats[0],
        log_probs=floats[1],
        values=floats[2],
        n_held=np.zeros((n_steps, n_envs), np.int64),
        samples=samples,
    )
    for t in range(n_steps):
        result = engines[1].step(actions[t].clip(-1, 1))
        np.testing.assert_array_equal(samples[t], result.samples)
    assert len(np.unique(samples[..., 0])) == n_steps * n_envs


MODELS = sorted(Path(envs.__file__).with_name("assets").glob("*.xml"))


@pytest.mark.parametrize("path", [*MODELS, "myoelbow"], ids=lambda path: Path(path).stem)
def test_native_equals_python_on_real_bodies(tmp_path: Path, path: Path | str) -> None:
    if path == "myoelbow":
        try:
            import myo_sim
        except ImportError:
            missing("MyoSim", "pip install 'sb3-hrl[myo]'")
        path = myo_sim.get_xml_path("myoelbow")
    settings = MuscleSettings(stiffness=80.0)
    task, interface = muscle_task(tmp_path, Path(path), settings, FRAME_SKIP)
    fast, slow = low_levels("qp")
    engine, twin = Engine(task, 1, seeds=[7]), Twin(interface, settings, slow, seed=7)
    engine.set_low_level(fast)
    engine.reset()
    twin.reset(*engine.qpos_qvel(0))
    rng = np.random.default_rng(3)
    for _ in range(15):
        action = rng.uniform(-1, 1, interface.n_coords).astype(np.float32)
        result = engine.step(action[None])
        twin.step(action)
        np.testing.assert_array_equal(result.obs[0], twin.obs())
        np.testing.assert_array_equal(result.samples[0], twin.sample)
        assert engine.summary(0) == twin.control.summary
    assert twin.control.summary.effort > 0
