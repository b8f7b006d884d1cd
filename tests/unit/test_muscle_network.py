"""Muscle networks: torch, the NumPy twin and the native kernel agree; cascades; what travels to the environments."""

import pickle

import numpy as np
import pytest
import torch as th

from sb3_hrl import native
from sb3_hrl.envs.engine import Engine
from sb3_hrl.muscle.interface import MuscleState
from sb3_hrl.muscle.muscles import Muscles, activate
from sb3_hrl.muscle.network import MuscleNetwork
from sb3_hrl.muscle.qp import QpLowLevel, TorqueLowLevel
from sb3_hrl.muscle.settings import MuscleSettings
from tests.equivalence.test_muscle_twin import FRAME_SKIP, Twin
from tests.muscle_models import LEG, muscle_task

N_PACKED, N_COORDS, N_MUSCLES = 18, 6, 14


def make_network(hidden=((128, 128),), n_packed=N_PACKED, n_coords=N_COORDS, n_muscles=N_MUSCLES, seed=0):
    """A network whose levels all do something: fresh upper levels are zero."""
    rng = np.random.default_rng(seed)
    network = MuscleNetwork(
        n_packed, n_coords, n_muscles, hidden[0], rng.uniform(50, 400, n_packed), rng.uniform(50, 400, n_coords), seed
    )
    for widths in hidden[1:]:
        network.add_level(widths, seed + 1)
    generator = th.Generator().manual_seed(seed)
    with th.no_grad():
        for parameter in network.parameters():
            if parameter.ndim == 1 or not parameter.any():
                parameter.normal_(std=0.2, generator=generator)
    return network


def make_inputs(network, n_rows=50, seed=1):
    rng = np.random.default_rng(seed)
    packed = 150 * rng.standard_normal((n_rows, network.n_packed))
    return packed, 100 * rng.standard_normal((n_rows, network.n_coords)), rng.uniform(0, 1, n_rows)


def native_activate(muscles, packed, torque, weight, **kwargs):
    kernel = native.load().MuscleNetwork(
        [list(level) for level in muscles.levels], muscles.packed_scale, muscles.torque_scale, **kwargs
    )
    activation = np.full((len(packed), kernel.n_muscles), np.nan)
    kernel.activate(packed, torque, weight, activation)
    return activation


def torch_activate(network, packed, torque, weight):
    with th.no_grad():
        return th.relu(th.tanh(network(*(th.as_tensor(x, dtype=th.float32) for x in (packed, torque, weight))))).numpy()


SHAPES = [
    *(((128, 128),), ((64, 64),), ((256, 256, 256),), ((50, 7),), ((50, 1),), ((),)),
    *(((64,), (64, 64)), ((32,), (16,), (40, 40))),
]


@pytest.mark.parametrize("hidden", SHAPES, ids=str)
def test_kernel_twin_and_torch_agree(hidden):
    network = make_network(hidden)
    inputs = make_inputs(network)
    muscles = network.to_muscles()
    expected = activate(muscles, *inputs)
    assert 0.1 < (expected > 0).mean() < 0.9
    assert expected.min() >= 0
    assert expected.max() <= 1
    widths = [bits for bits in (128, 256, 512) if bits <= native.load().widest_vector_bits()]
    for bits in (0, *widths):
        np.testing.assert_array_equal(native_activate(muscles, *inputs, vector_bits=bits), expected)
    np.testing.assert_allclose(torch_activate(network, *inputs), expected, atol=3e-6)


def test_the_size_of_myosims_legs():
    network = make_network(((64, 64),), n_packed=228, n_coords=14, n_muscles=80)
    inputs = make_inputs(network, 5)
    np.testing.assert_array_equal(native_activate(network.to_muscles(), *inputs), activate(network.to_muscles(), *inputs))


def test_another_order_of_the_sums_would_be_seen():
    """The negative control of the exact comparison: the same network with its inputs turned round."""
    muscles = make_network().to_muscles()
    packed, torque, weight = make_inputs(make_network())
    (first, *others) = muscles.levels[0]
    turned = (np.ascontiguousarray(first[0][::-1]), first[1])
    other = Muscles("network", ((turned, *others),), muscles.torque_scale[::-1].copy(), muscles.packed_scale[::-1].copy())
    kernel = native_activate(other, torque[:, ::-1].copy(), packed[:, ::-1].copy(), weight)
    expected = activate(muscles, packed, torque, weight)
    np.testing.assert_allclose(kernel, expected, atol=3e-6)
    assert (kernel != expected).any()


def test_rows_do_not_depend_on_each_other():
    network = make_network()
    packed, torque, weight = make_inputs(network)
    muscles = network.to_muscles()
    together = native_activate(muscles, packed, torque, weight)
    for row in (0, 7, 49):
        alone = native_activate(muscles, packed[row : row + 1], torque[row : row + 1], weight[row : row + 1])
        np.testing.assert_array_equal(alone[0], together[row])


# --- cascades ----------------------------------------------------------------------------------------------------------


def test_a_cascade_adds_once():
    """``u = previous + weight * f([0.5 * previous, weight, ...])``: adding ``previous`` again, or weighting twice, is seen."""
    network = make_network(((32,), (16,)))
    packed, torque, weight = make_inputs(network)
    inputs = np.concatenate(
        (packed.astype(np.float32) / network.packed_scale.numpy(), torque.astype(np.float32) / network.torque_scale.numpy()), 1
    )
    with th.no_grad():
        previous = network.levels[0](th.from_numpy(inputs)).numpy()
        w = weight.astype(np.float32)[:, None]
        f = network.levels[1](th.from_numpy(np.concatenate((0.5 * previous, w, inputs), 1))).numpy()
    right = np.maximum(np.tanh(previous + w * f), 0)
    twice = np.maximum(np.tanh(previous + w * (previous + w * f)), 0)
    muscles = network.to_muscles()
    for result in (
        native_activate(muscles, packed, torque, weight),
        activate(muscles, packed, torque, weight),
        torch_activate(network, packed, torque, weight),
    ):
        np.testing.assert_allclose(result, right, atol=3e-6)
        assert np.abs(result - twice).max() > 0.05


def test_weight_zero_is_the_level_below():
    network = make_network(((32,), (16,)))
    packed, torque, _ = make_inputs(network)
    zero = np.zeros(len(packed))
    muscles = network.to_muscles()
    below = Muscles("network", muscles.levels[:1], muscles.packed_scale, muscles.torque_scale)
    np.testing.assert_array_equal(native_activate(muscles, packed, torque, zero), native_activate(below, packed, torque, zero))
    # In three levels the middle one counts in full.
    three = make_network(((32,), (16,), (16,)))
    two = Muscles("network", three.to_muscles().levels[:2], muscles.packed_scale, muscles.torque_scale)
    full = native_activate(two, packed, torque, zero + 1)
    np.testing.assert_array_equal(native_activate(three.to_muscles(), packed, torque, zero), full)


def test_a_new_level_changes_nothing_before_it_learns():
    network = make_network(((32,),))
    inputs = make_inputs(network)
    before = activate(network.to_muscles(), *inputs)
    network.add_level((16,))
    np.testing.assert_array_equal(activate(network.to_muscles(), *inputs), before)
    assert [parameter.requires_grad for parameter in network.levels[0].parameters()] == [False] * 4
    assert all(parameter.requires_grad for parameter in network.levels[1].parameters())


# --- inside the workers ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hidden", [((128, 128),), ((32,), (16, 16))], ids=["one level", "cascade"])
def test_the_workers_run_the_twins_network(tmp_path, hidden):
    settings = MuscleSettings(stiffness=250.0, scale=0.6, has_cascade=len(hidden) > 1)
    task, interface = muscle_task(tmp_path, LEG, settings, FRAME_SKIP)
    muscles = make_network(hidden, interface.n_packed, interface.n_coords, interface.n_muscles).to_muscles()
    engine = Engine(task, 2, 2, seeds=[7, 7])
    engine.set_low_level(muscles.to_native())
    twin = Twin(interface, settings, muscles, seed=7)
    engine.reset()
    twin.reset(*engine.qpos_qvel(0))
    rng = np.random.default_rng(3)
    activations = []
    for _ in range(20):
        action = rng.uniform(-1, 1, interface.n_coords + settings.has_cascade).astype(np.float32)
        result = engine.step(np.stack((action, action)))
        twin.step(action)
        for obs, sample in zip(result.obs, result.samples, strict=True):
            np.testing.assert_array_equal(obs, twin.obs())
            np.testing.assert_array_equal(sample, twin.control.sample)
        activations.append(twin.data.act.copy())
    assert np.ptp(activations, axis=0).max() > 0.1


def test_a_network_for_other_muscles_is_refused(tmp_path):
    task, _ = muscle_task(tmp_path, LEG, MuscleSettings(), FRAME_SKIP)
    sentence = (
        "muscle network: expected one for 6 muscles, 3 coordinates and 9 torques per activation, got one for 14 muscles, 6"
    )
    with pytest.raises(ValueError, match=sentence):
        Engine(task, 1).set_low_level(make_network().to_muscles().to_native())


# --- weights -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hidden", SHAPES, ids=str)
def test_saved_and_loaded_gives_the_same(tmp_path, hidden):
    network = make_network(hidden)
    th.save(network.state_dict(), tmp_path / "network.pt")
    loaded = MuscleNetwork.from_state_dict(th.load(tmp_path / "network.pt", weights_only=True))
    assert loaded.to_muscles() == network.to_muscles()
    inputs = make_inputs(network)
    np.testing.assert_array_equal(torch_activate(loaded, *inputs), torch_activate(network, *inputs))
    assert [p.requires_grad for p in loaded.parameters()] == [p.requires_grad for p in network.parameters()]


def test_initial_weights_depend_on_the_seed_alone():
    th.manual_seed(5)
    before = th.get_rng_state()
    first = MuscleNetwork(4, 2, 3, seed=1)
    assert th.equal(th.get_rng_state(), before)
    assert first.to_muscles() == MuscleNetwork(4, 2, 3, seed=1).to_muscles() != MuscleNetwork(4, 2, 3, seed=2).to_muscles()
    assert not any(parameter.any() for parameter in first.parameters() if parameter.ndim == 1)


@pytest.mark.parametrize("scale", [0.0, -1.0, np.nan, np.inf])
def test_scales_are_checked(scale):
    with pytest.raises(ValueError, match="torque_scale: expected finite numbers > 0"):
        MuscleNetwork(4, 2, 3, torque_scale=scale)


# --- what travels ------------------------------------------------------------------------------------------------------


def test_muscles_are_equal_where_their_content_is():
    network = make_network(((8,),))
    muscles = network.to_muscles()
    copy = pickle.loads(pickle.dumps(muscles))
    assert copy == muscles
    assert copy.version == network.to_muscles().version
    assert hash(copy) == hash(muscles)
    inputs = make_inputs(network)
    np.testing.assert_array_equal(activate(copy, *inputs), activate(muscles, *inputs))
    with th.no_grad():
        next(network.parameters())[0, 0] += 1e-6
    assert network.to_muscles() != muscles
    assert muscles.version == copy.version, "a handed-over copy must not follow the network"
    assert Muscles("qp") == Muscles("qp") != Muscles("qp", qp_effort=1.0)
    assert Muscles("torque") != Muscles("qp")


def test_each_low_level_is_made():
    network = make_network(((8,),))
    packed, torque, weight = make_inputs(network, 1)
    unused = np.zeros(0)
    low_level = network.to_muscles().to_low_level()
    state = MuscleState(unused, packed[0], unused, unused, unused)
    expected = activate(network.to_muscles(), packed, torque, weight)[0]
    np.testing.assert_array_equal(low_level.activate(state, torque[0], float(weight[0])), expected)
    assert not low_level.is_torque
    qp = Muscles("qp", qp_torque_scale=7.0, qp_effort=0.5).to_low_level()
    assert isinstance(qp, QpLowLevel)
    assert (qp.torque_scale, qp.effort) == (7.0, 0.5)
    assert isinstance(Muscles("torque").to_low_level(), TorqueLowLevel)


def test_bad_muscles_are_refused():
    with pytest.raises(ValueError, match="low_level: expected network, qp, torque, got 'netwrok'"):
        Muscles("netwrok")
    with pytest.raises(ValueError, match="levels: expected networks for the low level network only, got 0"):
        Muscles("network")
    with pytest.raises(ValueError, match="float32, got float64"):
        Muscles("network", (((np.zeros((2, 1)), np.zeros(1)),),), np.ones(1, np.float32), np.ones(1, np.float32))
