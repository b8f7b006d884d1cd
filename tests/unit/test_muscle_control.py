"""From an action to activations: stable PD, low levels, activation modes, samples and summaries of the readable controller."""

import math
from typing import Any

import mujoco
import numpy as np
import pytest

from sb3_hrl import native
from sb3_hrl.errors import NativeError
from sb3_hrl.muscle import MuscleControl, MuscleInterface, MuscleSettings, MuscleState, QpLowLevel, StablePd, TorqueLowLevel
from sb3_hrl.philox import RandomPurpose, RandomStream, philox
from tests.muscle_models import ARM, LEG
from tests.reference import muscle_torque

FRAME_SKIP = 6


def interface_of(xml: str, **changes: float) -> MuscleInterface:
    model = mujoco.MjModel.from_xml_string(xml)
    for key, value in changes.items():
        setattr(model.opt, key, value)
    return MuscleInterface(model)


class Recorder:
    """A low level that keeps what it was asked, at every substep."""

    is_torque = False

    def __init__(self, activation: Any = None) -> None:
        self.asked: list[tuple[np.ndarray, np.ndarray, float]] = []
        self.answer = QpLowLevel().activate if activation is None else lambda *_: np.asarray(activation, float)

    def activate(self, state: MuscleState, desired_torque: np.ndarray, weight: float) -> np.ndarray:
        self.asked.append((state.packed.copy(), desired_torque.copy(), weight))
        return self.answer(state, desired_torque, weight)


def start(interface: MuscleInterface, settings: MuscleSettings, low_level: Any) -> tuple[MuscleControl, Any]:
    control, data = MuscleControl(interface, settings, FRAME_SKIP), mujoco.MjData(interface.model)
    control.set_muscles(low_level)
    mujoco.mj_forward(interface.model, data)
    control.reset(data)
    return control, data


def step(control: MuscleControl, data: Any, action: Any) -> None:
    control.begin_step(data, np.asarray(action, np.float32))
    for substep in range(FRAME_SKIP):
        mujoco.mj_step1(control.interface.model, data)
        control.before_substep(data, substep)
        mujoco.mj_step2(control.interface.model, data)


# --- stable PD ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("xml", [ARM, LEG], ids=["arm", "leg"])
def test_stable_pd_is_that_of_the_equations(xml: str) -> None:
    interface = interface_of(xml)
    n = interface.n_coords
    rng, data = np.random.default_rng(0), mujoco.MjData(interface.model)
    stiffness, damping = rng.uniform(50, 800, n), rng.uniform(1, 40, n)
    pd = StablePd(interface, stiffness, damping)
    for _ in range(10):
        interface.random_state(data, rng, speed=1.0)
        mujoco.mj_forward(interface.model, data)
        data.qfrc_constraint[:] = 10 * rng.standard_normal(interface.model.nv)  # as a step before may have left it
        target = rng.uniform(-1, 1, n)
        expected = muscle_torque.stable_pd(interface.model, data, interface.dofs, target, stiffness, damping)
        np.testing.assert_allclose(pd.torque(data, target), expected, rtol=1e-6, atol=1e-6)


def hold(interface: MuscleInterface, is_stable: bool) -> np.ndarray:
    """Hold the arm at a target for two seconds by PD torques; returns the largest error in the end."""
    model, data, n = interface.model, mujoco.MjData(interface.model), interface.n_coords
    stiffness, damping, target = np.full(n, 300.0), np.full(n, 24.5), np.array([0.5, 0.7])
    pd = StablePd(interface, stiffness, damping)
    for _ in range(round(2.0 / model.opt.timestep)):
        mujoco.mj_step1(model, data)
        explicit = -stiffness * (data.qpos - target) - damping * data.qvel
        data.qfrc_applied[:] = pd.torque(data, target) if is_stable else explicit
        mujoco.mj_step2(model, data)
        if not np.abs(data.qvel).max() < 1000.0:
            return np.full(n, np.inf)
    return np.abs(data.qpos - target)


@pytest.mark.parametrize("timestep", [0.005, 0.01])
def test_stable_pd_holds_where_explicit_pd_diverges(timestep: float) -> None:
    interface = interface_of(ARM.replace('range="-60 120"', "").replace('range="0 140"', ""), timestep=timestep)
    assert hold(interface, is_stable=True).max() < 0.1  # gravity's share, since there is no integral term
    assert hold(interface, is_stable=False).max() > 0.5


# --- the quadratic programme --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("xml", [ARM, LEG], ids=["arm", "leg"])
@pytest.mark.parametrize("effort", [1e-4, 1e-2])
def test_the_programme_is_solved(xml: str, effort: float) -> None:
    interface = interface_of(xml)
    rng, data = np.random.default_rng(0), mujoco.MjData(interface.model)
    n_bounded = 0
    for _ in range(20):
        interface.random_state(data, rng)
        mujoco.mj_forward(interface.model, data)
        state = interface.read(data)
        torque = rng.uniform(1.5 * state.torque_low, 1.5 * state.torque_high)
        found = QpLowLevel(100.0, effort).activate(state, torque, 1.0)
        expected = muscle_torque.activations(state.torque_per_activation, torque, 100.0, effort)
        np.testing.assert_allclose(found, expected, atol=1e-6)
        assert found.min() >= 0.0
        assert found.max() <= 1.0
        n_bounded += int(np.count_nonzero((found == 0.0) | (found == 1.0)))
    assert n_bounded > 0


def test_what_activations_can_make_is_made() -> None:
    interface = interface_of(ARM)
    data, rng = mujoco.MjData(interface.model), np.random.default_rng(0)
    interface.random_state(data, rng)
    mujoco.mj_forward(interface.model, data)
    state = interface.read(data)
    for _ in range(10):
        torque = state.torque_per_activation @ rng.uniform(0.2, 0.8, 6)
        found = QpLowLevel(effort=1e-9).activate(state, torque, 1.0)
        np.testing.assert_allclose(state.torque_per_activation @ found, torque, atol=1e-3)


@pytest.mark.parametrize("key", ["torque_scale", "effort"])
def test_wrong_weights_are_refused(key: str) -> None:
    with pytest.raises(ValueError, match=f"{key}: expected a finite number > 0, got 0.0"):
        QpLowLevel(**{key: 0.0})
    with pytest.raises(ValueError, match=f"{key}: expected a number > 0"):
        native.load().QpLowLevel(**{"torque_scale": 1.0, "effort": 1.0} | {key: 0.0})


# --- what is written ----------------------------------------------------------------------------------------------------


def test_muscles_make_the_desired_torque() -> None:
    """The whole chain: where the torque is within reach, MuJoCo's own actuator torques are those of stable PD."""
    interface = interface_of(ARM)
    control, data = start(interface, MuscleSettings(stiffness=20.0, nominal=(0.3, 1.0)), QpLowLevel(effort=1e-9))
    pd = StablePd(interface, np.full(2, 20.0), np.full(2, math.sqrt(40.0)))
    data.qpos[:] = 0.3, 1.0
    n_feasible = 0
    for _ in range(20):
        control.begin_step(data, np.full(2, 0.2, np.float32))
        for substep in range(FRAME_SKIP):
            mujoco.mj_step1(interface.model, data)
            torque = pd.torque(data, np.array([0.3, 1.0]) + 0.5 * float(np.float32(0.2)))
            control.before_substep(data, substep)
            mujoco.mj_step2(interface.model, data)
            state = control.state
            if (torque - state.passive_torque > state.torque_low).all() and (
                torque - state.passive_torque < state.torque_high
            ).all():
                n_feasible += 1
                produced = state.torque_per_activation @ data.act + state.passive_torque
                np.testing.assert_allclose(produced, torque, atol=0.05)
    assert n_feasible > 60
    assert control.summary.torque_error < 0.05


def test_targets_stay_within_the_joint_range() -> None:
    interface = interface_of(ARM)
    control, data = start(interface, MuscleSettings(nominal=(0.0, 0.1), scale=(9.0, 1.0)), Recorder())
    step(control, data, [1.0, -1.0])
    np.testing.assert_allclose(control._target, [math.radians(120), 0.0])


def test_direct_activation_is_at_once() -> None:
    wanted = np.linspace(0.1, 0.9, 6)
    control, data = start(interface_of(ARM), MuscleSettings(), Recorder(wanted))
    step(control, data, [0.0, 0.0])
    np.testing.assert_allclose(data.act, wanted, atol=1e-15)
    np.testing.assert_array_equal(data.ctrl, wanted)


def test_excitation_goes_through_the_dynamics() -> None:
    wanted = np.linspace(0.1, 0.9, 6)
    interface = interface_of(ARM)
    control, data = start(interface, MuscleSettings(activation="excitation"), Recorder(wanted))
    activation = np.zeros(6)
    step(control, data, [0.0, 0.0])
    for _ in range(FRAME_SKIP):
        for i in range(6):
            rate = mujoco.mju_muscleDynamics(wanted[i], activation[i], interface.model.actuator_dynprm[i, :3])
            activation[i] += interface.model.opt.timestep * rate
    np.testing.assert_allclose(data.act, activation, rtol=1e-12)
    assert (data.act < 0.99 * wanted).all()


def test_inverted_activation_wants_no_smoothing() -> None:
    interface = interface_of(ARM)
    interface.model.actuator_dynprm[interface.muscle_ids[2], 2] = 0.2
    with pytest.raises(ValueError, match=f"which the muscle '{interface.muscle_names[2]}' has: set it to zero"):
        MuscleSettings(activation="inverted").resolve(interface)
    MuscleSettings(activation="excitation").resolve(interface)


def test_inverted_activation_arrives_in_one_substep_if_it_can() -> None:
    """Up within 10 ms * factor, down within 40 ms / factor: small changes arrive, large ones go as far as 0 and 1 let them."""
    interface = interface_of(ARM)
    wanted = np.array([0.42, 0.39, 1.0, 0.0, 0.4, 0.45])
    control, data = start(interface, MuscleSettings(activation="inverted"), Recorder(wanted))
    data.act[:] = 0.4
    control.begin_step(data, np.zeros(2, np.float32))
    mujoco.mj_step1(interface.model, data)
    control.before_substep(data, 0)
    excitation = data.ctrl.copy()
    mujoco.mj_step2(interface.model, data)
    np.testing.assert_allclose(data.act[[0, 1, 4, 5]], wanted[[0, 1, 4, 5]], rtol=1e-9)
    assert excitation[2] == 1.0
    assert excitation[3] == 0.0
    assert 0.4 < data.act[2] < 0.6
    assert 0.3 < data.act[3] < 0.4


def test_torque_low_level_applies_the_desired_torque() -> None:
    interface = interface_of(LEG)
    control, data = start(interface, MuscleSettings(), TorqueLowLevel())
    data.act[interface.activations] = 0.5
    step(control, data, np.ones(3))
    assert np.abs(data.qfrc_applied[interface.dofs]).max() > 0.1
    assert not data.act[interface.activations].any()
    assert control.summary.torque_error == 0.0
    control.set_muscles(QpLowLevel())
    step(control, data, np.zeros(3))
    assert not data.qfrc_applied.any()  # a change of the low level leaves nothing behind


def test_torque_actuation_needs_no_muscles_and_keeps_their_passive_force() -> None:
    interface = interface_of(LEG)
    settings = MuscleSettings("torque", torque_limit=(10.0, 20.0, 30.0))
    control, data = start(interface, settings, None)
    step(control, data, [0.5, -1.0, 0.25])
    np.testing.assert_array_equal(data.qfrc_applied[interface.dofs], [5.0, -20.0, 7.5])
    assert control.summary.effort == pytest.approx((0.25 + 1.0 + 0.0625) / 3)
    assert not data.act[interface.activations].any()


def test_other_actuators_are_left_alone() -> None:
    interface = interface_of(LEG)
    control, data = start(interface, MuscleSettings(), QpLowLevel())
    data.ctrl[[0, 4]] = 0.3, -0.2
    step(control, data, np.ones(3))
    assert data.ctrl[[0, 4]].tolist() == [0.3, -0.2]
    assert data.ctrl[interface.controls].any()


def test_without_muscles_it_refuses_to_step() -> None:
    control, data = start(interface_of(ARM), MuscleSettings(), None)
    with pytest.raises(
        NativeError, match=r"is driven by a model's muscles and has none: load the model with HPPO .* set_muscles"
    ):
        step(control, data, np.zeros(2))


def test_runge_kutta_is_refused() -> None:
    interface = interface_of(ARM, integrator=int(mujoco.mjtIntegrator.mjINT_RK4))
    with pytest.raises(ValueError, match="integrator: RK4 has no place for a controller"):
        MuscleControl(interface, MuscleSettings(), FRAME_SKIP)


@pytest.mark.parametrize(("action", "weight"), [(0.0, 0.5), (10.0, 1.0), (-10.0, 0.0), (1000.0, 1.0), (-1000.0, 0.0)])
def test_a_cascade_has_a_weight(action: float, weight: float) -> None:
    recorder = Recorder()
    control, data = start(interface_of(ARM), MuscleSettings(has_cascade=True), recorder)
    step(control, data, [0.0, 0.0, action])
    assert [asked[2] for asked in recorder.asked] == pytest.approx([weight] * FRAME_SKIP, abs=1e-4)


# --- samples ------------------------------------------------------------------------------------------------------------


def test_a_sample_is_of_one_substep() -> None:
    """Jacobian and torque of the same, randomly drawn substep; a mixture of two would be seen."""
    recorder = Recorder()
    interface = interface_of(ARM)
    control, data = start(interface, MuscleSettings(stiffness=300.0), recorder)
    control.seed(5)
    rng, drawn = np.random.default_rng(0), []
    for _ in range(60):
        recorder.asked.clear()
        step(control, data, rng.uniform(-1, 1, 2))
        pairs = [np.concatenate([packed, torque]).astype(np.float32) for packed, torque, _ in recorder.asked]
        equal = [i for i, pair in enumerate(pairs) if np.array_equal(pair, control.sample)]
        assert len(equal) == 1
        n = interface.n_packed
        for i, pair in enumerate(pairs):  # either half belongs to that substep alone
            assert np.array_equal(pair[:n], control.sample[:n]) == (i == equal[0])
            assert np.array_equal(pair[n:], control.sample[n:]) == (i == equal[0])
        drawn += equal
    counts = np.bincount(drawn, minlength=FRAME_SKIP)
    assert counts.min() >= 3  # of 60 / 6 expected: every substep has its turn
    repeated = MuscleControl(interface, MuscleSettings(), FRAME_SKIP)
    repeated.seed(5)
    stream = RandomStream(5, 0, RandomPurpose.substep)
    assert drawn == [int(stream.uniform() * FRAME_SKIP) for _ in range(60)]


# --- summaries ----------------------------------------------------------------------------------------------------------


def test_the_summary_is_that_of_the_substeps() -> None:
    interface = interface_of(ARM)
    wanted = np.array([1.0, 0.5, 0.25, 0.0, 0.995, 0.1])
    recorder = Recorder(wanted)
    control, data = start(interface, MuscleSettings(), recorder)
    step(control, data, [0.4, -0.4])
    errors, opposing, infeasible = [], [], []
    for packed, torque, _ in recorder.asked:
        torques = interface.unpack(packed) * wanted
        errors.append((torques.sum(axis=1) - torque) ** 2)
        up, down = torques.clip(min=0).sum(axis=1), -torques.clip(max=0).sum(axis=1)
        opposing.append(2 * np.minimum(up, down) / (up + down))
        full = interface.unpack(packed)
        infeasible.append(bool(((torque < full.clip(max=0).sum(1)) | (torque > full.clip(min=0).sum(1))).any()))
    summary = control.summary
    assert summary.effort == pytest.approx(np.mean(wanted**2))
    assert summary.mean_activation == pytest.approx(wanted.mean())
    assert summary.saturation == pytest.approx(2 / 6)
    assert summary.torque_error == pytest.approx(np.sqrt(np.mean(errors)))
    assert summary.co_contraction == pytest.approx(np.mean(opposing))
    assert summary.infeasible == pytest.approx(np.mean(infeasible))


# --- random numbers -----------------------------------------------------------------------------------------------------


def test_random_numbers_are_the_native_ones() -> None:
    assert philox((0, 0, 0, 0), (0, 0)) == (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)  # of Random123's own test
    ones = (2**32 - 1,) * 4
    assert philox(ones, ones[:2]) == (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)
    seed = 2**40 + 3
    noise = native.load().action_noise(seed, 2, 3, 2, 4)  # [T, E, n_actions]
    for env_index in range(2):
        stream = RandomStream(seed, env_index, RandomPurpose.action, n_drawn=2 * 4)
        expected = np.array([stream.normal() for _ in range(12)], np.float32).reshape(3, 4)
        np.testing.assert_array_equal(noise[:, env_index], expected)
    stream = RandomStream(1)
    numbers = [stream.uniform(-2.0, 3.0) for _ in range(200)]
    assert -2.0 <= min(numbers) < -1.5
    assert 2.5 < max(numbers) < 3.0
