"""What the muscles of a model can do, compared with the definitions."""

import re
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest
import torch as th

from sb3_hrl.experiments.cli import main
from sb3_hrl.muscle import MuscleInterface, MuscleSettings
from tests.conftest import missing
from tests.muscle_models import ARM, LEG
from tests.reference import muscle_torque

ARM_JOINT = 'name="elbow" axis="0 -1 0"'
FLEXOR = 'name="elbow_flexor" tendon="elbow_flexor"'


def load(xml: str) -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_string(xml)


def myo_model(name: str) -> mujoco.MjModel:
    try:
        import myo_sim
    except ImportError:
        missing("MyoSim", "pip install 'sb3-hrl[myo]'")
    return myo_sim.load(name)[0]


MODELS: dict[str, Callable[[], mujoco.MjModel]] = {
    "arm": lambda: load(ARM),
    "leg": lambda: load(LEG),
    "myoelbow": lambda: myo_model("myoelbow"),
    "myolegs": lambda: myo_model("myolegs"),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.filterwarnings("ignore:Attaching a spec")
def test_torques_are_those_of_the_definition(name: str) -> None:
    model = MODELS[name]()
    interface = MuscleInterface(model)
    assert interface.identity_error < 1e-11
    data, rng = mujoco.MjData(model), np.random.default_rng(0)
    outputs = model.actuator_outadr[interface.muscle_ids]
    for _ in range(3):
        interface.random_state(data, rng, speed=0.5)
        mujoco.mj_forward(model, data)
        state = interface.read(data)
        np.testing.assert_allclose(data.qpos, muscle_torque.coupled(model, data.qpos.copy()), atol=1e-14)
        arms = muscle_torque.moment_arms(model, data.qpos.copy(), interface.dofs, outputs)
        passive = muscle_torque.forces(model, data, interface.muscle_ids, 0.0)
        active = muscle_torque.forces(model, data, interface.muscle_ids, 1.0) - passive
        scale = np.abs(active).max()
        np.testing.assert_allclose(state.torque_per_activation, arms * active, atol=1e-6 * scale)
        np.testing.assert_allclose(state.passive_torque, arms @ passive, atol=1e-6 * scale)
        np.testing.assert_array_equal(interface.unpack(state.packed), state.torque_per_activation)


@pytest.mark.filterwarnings("ignore:Attaching a spec")
def test_myolegs_is_reduced() -> None:
    """As many coordinates and torques as the literature of this model has; columns alone would be wrong by centimetres."""
    interface = MuscleInterface(myo_model("myolegs"))
    assert (interface.n_muscles, interface.n_coords, len(interface.couplings), interface.n_packed) == (80, 14, 14, 228)
    model, data = interface.model, mujoco.MjData(interface.model)
    interface.random_state(data, np.random.default_rng(0))
    mujoco.mj_forward(model, data)
    outputs = model.actuator_outadr[interface.muscle_ids]
    arms = muscle_torque.moment_arms(model, data.qpos.copy(), interface.dofs, outputs)
    moment = np.zeros((model.nout, model.nv))
    mujoco.mju_sparse2dense(moment, data.actuator_moment, data.moment_rownnz, data.moment_rowadr, data.moment_colind)
    columns = moment[outputs][:, interface.dofs].T
    assert np.abs(columns - arms).max() > 0.01
    full = moment[outputs] @ muscle_torque.tangent(model, data.qpos.copy(), interface.dofs)
    np.testing.assert_allclose(full.T, arms, atol=1e-6)


def test_bounds_are_the_extremes_of_all_activations() -> None:
    interface = MuscleInterface(load(ARM))
    data = mujoco.MjData(interface.model)
    interface.random_state(data, np.random.default_rng(1))
    mujoco.mj_forward(interface.model, data)
    state = interface.read(data)
    torques = np.array([state.torque_per_activation @ corner for corner in product((0.0, 1.0), repeat=6)])
    np.testing.assert_allclose(torques.min(axis=0), state.torque_low, atol=1e-12)
    np.testing.assert_allclose(torques.max(axis=0), state.torque_high, atol=1e-12)


def test_muscles_are_found_by_their_gain_among_other_actuators() -> None:
    interface = MuscleInterface(load(LEG))
    assert interface.muscle_names == ("flexor", "hamstring", "vasti", "gastrocnemius", "tibialis", "gluteus")
    assert interface.joint_names == ("hip", "knee", "ankle")
    assert interface.controls.tolist() == [1, 2, 3, 5, 6, 7]
    assert interface.activations.tolist() == [0, 1, 2, 4, 5, 6]
    assert [interface.model.joint(coupling.joint).name for coupling in interface.couplings] == ["knee_slide", "toe"]


def test_joints_can_be_chosen_and_ordered() -> None:
    model = load(LEG)
    every, some = MuscleInterface(model), MuscleInterface(model, ["ankle", "hip"])
    data = mujoco.MjData(model)
    every.random_state(data, np.random.default_rng(0))
    mujoco.mj_forward(model, data)
    np.testing.assert_array_equal(some.read(data).torque_per_activation, every.read(data).torque_per_activation[[2, 0]])


def test_unpack_takes_batches_and_tensors() -> None:
    interface = MuscleInterface(load(ARM))
    packed = np.random.default_rng(0).standard_normal((3, 4, interface.n_packed)).astype(np.float32)
    full = interface.unpack(packed)
    assert full.shape == (3, 4, 2, 6)
    assert full.dtype == np.float32
    np.testing.assert_array_equal(full.reshape(3, 4, -1)[..., interface.pattern], packed)
    assert np.count_nonzero(full) == packed.size
    tensor = th.tensor(packed, requires_grad=True)
    unpacked = interface.unpack(tensor)
    np.testing.assert_array_equal(unpacked.detach().numpy(), full)
    unpacked.square().sum().backward()
    assert tensor.grad is not None
    np.testing.assert_allclose(tensor.grad.numpy(), 2 * packed)


REFUSED = {
    "no muscles": ("<muscle name=", "<motor name=", "the model has no muscles: its 6 actuators are of other kinds"),
    "actuatorfrcrange": (ARM_JOINT, f'{ARM_JOINT} actuatorfrcrange="-3 3"', "'elbow' has an actuatorfrcrange, which clamps"),
    "actuatorgravcomp": (ARM_JOINT, f'{ARM_JOINT} actuatorgravcomp="true"', "'elbow' has actuatorgravcomp, which adds"),
    "tendon": ('name="elbow_flexor">', 'name="elbow_flexor" actuatorfrcrange="-9 9">', "'elbow_flexor' .* its tendon has"),
    "actearly": (
        'name="vasti" tendon',
        'name="vasti" actearly="true" tendon',
        "'vasti' .* its actearly makes the force use the next activation",
    ),
    "forcerange": (FLEXOR, f'{FLEXOR} forcerange="-9 0"', "'elbow_flexor' .* its forcerange clamps the force"),
    "ctrlrange": (FLEXOR, f'{FLEXOR} ctrlrange="0 0.5"', r"expected a ctrlrange from 0 .* to 1, got \[0, 0.5\]"),
    "group": ('timestep="0.002"', 'timestep="0.002" actuatorgroupdisable="0"', "its group 0 is disabled"),
    "disabled": ("<default>", '<option><flag actuation="disable"/></option><default>', "`actuation` is disabled"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_models_where_the_identity_breaks_are_refused(what: str) -> None:
    old, new, message = REFUSED[what]
    body = ARM if old in ARM else LEG
    xml = body.replace(old, new)
    if what == "no muscles":
        xml = xml.replace('range="0.6 1.3"', "").replace("force=", "gear=").replace("<muscle ctrl", "<motor ctrl")
    assert xml != body
    with pytest.raises(ValueError, match=message):
        MuscleInterface(load(xml))


def test_what_breaks_the_identity_for_no_known_reason_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the list of reasons, the comparison with MuJoCo's torques finds the same models."""
    monkeypatch.setattr("sb3_hrl.muscle.interface._check_muscles", lambda *_: None)
    for what in ("actuatorfrcrange", "actearly", "forcerange"):
        old, new, _ = REFUSED[what]
        with pytest.raises(ValueError, match="the muscles' torques are not gain"):
            MuscleInterface(load((ARM if old in ARM else LEG).replace(old, new)))


WRONG_JOINTS: dict[str, tuple[list[str], str]] = {
    "unknown": (["hip", "kne"], "joints: the model has no joint 'kne', did you mean 'knee'?"),
    "coupled": (["toe"], "joints: 'toe' is no coordinate of its own, an equality couples it: it follows 'knee'"),
    "not spanned": (["hip", "root_x"], "joints: expected joints that a muscle spans, got 'root_x', which none does"),
    "twice": (["hip", "hip"], "joints: expected each joint once"),
}


@pytest.mark.parametrize("what", WRONG_JOINTS)
def test_wrong_joints_are_refused(what: str) -> None:
    joints, message = WRONG_JOINTS[what]
    with pytest.raises(ValueError, match=re.escape(message)):
        MuscleInterface(load(LEG), joints)


def test_couplings_in_a_circle_are_refused() -> None:
    more = '<equality><joint joint1="knee" joint2="toe"/>'
    with pytest.raises(ValueError, match="coupled in a circle: knee, toe, knee_slide"):
        MuscleInterface(load(LEG.replace("<equality>", more)))


WRONG_SETTINGS: dict[str, tuple[dict[str, Any], str]] = {
    "actuation": (
        {"actuation": "muscle_hlr"},
        "actuation: expected muscle_hrl, muscle_e2e, torque, got 'muscle_hlr', did you",
    ),
    "activation": ({"activation": "late"}, "activation: expected direct, excitation, inverted, got 'late'"),
    "joints": ({"joints": "hip"}, "joints: expected a list of names, got 'hip'"),
    "negative": ({"stiffness": -1.0}, "stiffness: expected a finite number >= 0, or one for each joint, got -1.0"),
    "text": ({"scale": "far"}, "scale: expected a finite number >= 0, or one for each joint, got 'far'"),
    "nan": ({"nominal": [0.0, float("nan")]}, "nominal: expected a finite number, or one for each joint"),
    "none": ({"scale": None}, "scale: expected a finite number >= 0, or one for each joint, got None"),
    "cascade": ({"has_cascade": True, "actuation": "torque"}, "has_cascade: only the actuation muscle_hrl has a low level"),
}


@pytest.mark.parametrize("what", WRONG_SETTINGS)
def test_wrong_settings_are_refused(what: str) -> None:
    keywords, message = WRONG_SETTINGS[what]
    with pytest.raises(ValueError, match=re.escape(message)):
        MuscleSettings(**keywords)


def test_settings_of_the_wrong_length_are_refused() -> None:
    interface = MuscleInterface(load(ARM))
    message = "stiffness: expected one number, or 2 (for shoulder, elbow), got 3"
    with pytest.raises(ValueError, match=re.escape(message)):
        MuscleSettings(stiffness=(1.0, 2.0, 3.0)).resolve(interface)


def test_settings_have_defaults_for_any_body() -> None:
    interface = MuscleInterface(load(LEG))
    full = MuscleSettings(stiffness=(200.0, 50.0, 8.0)).resolve(interface)
    assert full.joints == ("hip", "knee", "ankle")
    assert full.damping == (20.0, 10.0, 4.0)
    assert full.scale == (0.5, 0.5, 0.5)
    assert full.nominal == (0.0, 0.0, 0.0)
    assert np.min(np.array(full.torque_limit)) > 10.0
    low, high = MuscleSettings(has_cascade=True).action_bounds(interface)
    assert high.tolist() == [1.0, 1.0, 1.0, 10.0]
    assert (low == -high).all()


# --- sb3-hrl muscles ----------------------------------------------------------------------------------------------------


def test_the_command_reports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "leg.xml"
    path.write_text(LEG)
    assert main(["muscles", str(path)]) == 0
    out = capsys.readouterr().out
    lines = {line.split("│")[1].strip(): line for line in out.splitlines() if "│" in line}
    assert {"flexor", "vasti", "gluteus", "hip", "knee", "ankle", "knee_slide", "toe"} <= set(lines)
    assert "6000" in lines["vasti"]
    assert "hip -8 … -8, knee 3 … 3" in lines["flexor"]
    assert "-0.524 … 1.75" in lines["hip"]
    assert "+3 x^1" in lines["toe"]
    assert "6 muscles drive 3 coordinates; 9 of 18 torques per activation are not structurally zero." in out
    assert "qfrc_actuator = J^T (gain * activation + bias) holds" in out
    assert main(["muscles", str(path), "--joints", "ankle"]) == 0
    assert "6 muscles drive 1 coordinates; 2 of 6" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("xml", "message"),
    [
        (None, "there is no such file"),
        ("<mujoco><wordbody/></mujoco>", "XML Error: Schema violation: unrecognized element"),
        ("<mujoco/>", "the model has no muscles: it has no actuators"),
        (ARM.replace(ARM_JOINT, f'{ARM_JOINT} actuatorfrcrange="-3 3"'), "'elbow' has an actuatorfrcrange"),
    ],
)
def test_the_command_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str], xml: str | None, message: str) -> None:
    path = tmp_path / "body.xml"
    if xml is not None:
        path.write_text(xml)
    assert main(["muscles", str(path)]) == 1
    captured = capsys.readouterr()
    assert captured.err.startswith(f"sb3-hrl muscles: {path}: ")
    assert message in captured.err
    assert not captured.out
