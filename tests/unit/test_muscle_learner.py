"""Learning to drive muscles: the loss against its equation, the learner, its buffer, random poses."""

import copy

import mujoco
import numpy as np
import pytest
import torch as th

from sb3_hrl.muscle.buffer import MuscleBuffer
from sb3_hrl.muscle.interface import MuscleInterface
from sb3_hrl.muscle.learner import MuscleLearner
from sb3_hrl.muscle.loss import make_pattern, muscle_loss, produced_torque
from sb3_hrl.muscle.network import MuscleNetwork
from sb3_hrl.muscle.pretrain import pretrain, random_tuples
from sb3_hrl.muscle.settings import MuscleSettings
from tests.muscle_models import ARM, LEG
from tests.reference import muscle_loss as reference

N_COORDS, N_MUSCLES = 3, 5
# Muscle by muscle, as the interface packs; muscle 3 spans all, muscle 4 one coordinate.
PATTERN = np.array([d * N_MUSCLES + m for m in range(N_MUSCLES) for d in ((0, 1), (1,), (2, 0), (0, 1, 2), (2,))[m]])


def make_tuples(n, seed=0, reach=1.0):
    """Tuples whose torques activations in [0, reach] made, so that they are feasible."""
    rng = np.random.default_rng(seed)
    packed = rng.uniform(10, 50, (n, len(PATTERN))) * np.where(np.arange(len(PATTERN)) % 2, 1.0, -1.0)
    full = np.zeros((n, N_COORDS * N_MUSCLES))
    full[:, PATTERN] = packed
    torque = np.einsum("bdm,bm->bd", full.reshape(n, N_COORDS, N_MUSCLES), rng.uniform(0, reach, (n, N_MUSCLES)))
    return np.concatenate((packed, torque), axis=1).astype(np.float32)


def make_learner(hidden=(32, 32), **kwargs):
    network = MuscleNetwork(len(PATTERN), N_COORDS, N_MUSCLES, hidden, 50.0, 50.0)
    return MuscleLearner(network, PATTERN, **{"learning_rate": 3e-3, "batch_size": 64, **kwargs})


def make_buffer(tuples, n_envs=2):
    buffer = MuscleBuffer(len(tuples) // n_envs, n_envs, len(PATTERN), N_COORDS)
    for rows in tuples.reshape(-1, n_envs, tuples.shape[1]):
        buffer.add(rows)
    return buffer


def states_equal(first, second):
    """Whether two nested states have the same bits."""
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(states_equal(first[key], second[key]) for key in first)
    if isinstance(first, list | tuple):
        return len(first) == len(second) and all(map(states_equal, first, second))
    return th.equal(first, second) if isinstance(first, th.Tensor) else first == second


# --- the loss ----------------------------------------------------------------------------------------------------------


def loss_and_gradient(effort_weight=0.05, pre_activation_weight=0.01):
    rng = np.random.default_rng(2)
    tuples = make_tuples(20).astype(np.float64)
    packed, torque = tuples[:, : len(PATTERN)], tuples[:, len(PATTERN) :]
    u, scale = rng.standard_normal((20, N_MUSCLES)), np.array([20.0, 50.0, 100.0])
    pattern = make_pattern(PATTERN, N_COORDS, N_MUSCLES)
    pattern = type(pattern)(*(matrix.double() for matrix in pattern))
    tensor = th.tensor(u, requires_grad=True)
    terms = muscle_loss(
        pattern, th.tensor(packed), th.tensor(torque), tensor, th.tensor(scale), effort_weight, pre_activation_weight
    )
    terms.total.backward()
    full = np.zeros((20, N_COORDS * N_MUSCLES))
    full[:, PATTERN] = packed
    assert tensor.grad is not None
    return terms, tensor.grad.numpy(), (full.reshape(20, N_COORDS, N_MUSCLES), torque, u, scale)


def test_the_loss_is_that_of_the_equation():
    terms, gradient, (matrix, torque, u, scale) = loss_and_gradient()
    total, expected = reference.muscle_loss(matrix, torque, u, scale, 0.05, 0.01)
    assert float(terms.total.detach()) == pytest.approx(total, rel=1e-12)
    np.testing.assert_allclose(gradient, expected, rtol=1e-9, atol=1e-14)
    # Every term counts: without one of them neither number is right.
    for weights in ((0.0, 0.01), (0.05, 0.0)):
        other, other_gradient = reference.muscle_loss(matrix, torque, u, scale, *weights)
        assert abs(other - total) > 1e-4
        assert np.abs(other_gradient - expected).max() > 1e-5


def test_the_references_gradient_is_its_derivative():
    _, _, (matrix, torque, u, scale) = loss_and_gradient()
    _, gradient = reference.muscle_loss(matrix, torque, u, scale, 0.05, 0.01)
    for b, m in ((0, 0), (3, 4), (19, 2)):
        step = np.zeros_like(u)
        step[b, m] = 1e-6
        high, low = (reference.muscle_loss(matrix, torque, u + sign * step, scale, 0.05, 0.01)[0] for sign in (1, -1))
        assert (high - low) / 2e-6 == pytest.approx(gradient[b, m], rel=1e-4, abs=1e-9)


def test_torques_from_the_packed_form():
    model = mujoco.MjModel.from_xml_string(LEG)
    interface = MuscleInterface(model)
    rng = np.random.default_rng(0)
    packed, activation = rng.standard_normal((7, interface.n_packed)), rng.uniform(size=(7, interface.n_muscles))
    expected = np.einsum("bdm,bm->bd", interface.unpack(packed), activation)
    pattern = make_pattern(interface.pattern, interface.n_coords, interface.n_muscles)
    produced = produced_torque(pattern, th.tensor(packed).float(), th.tensor(activation).float())
    np.testing.assert_allclose(produced.numpy(), expected, rtol=1e-5, atol=1e-5)


# --- the learner -------------------------------------------------------------------------------------------------------


def test_it_learns_feasible_torques():
    learner, held_out = make_learner(effort_weight=1e-3, pre_activation_weight=1e-3), make_tuples(500, seed=9)
    before = learner.evaluate(held_out)
    for seed in range(6):
        metrics = learner.update(make_buffer(make_tuples(512, seed)))
    after = learner.evaluate(held_out)
    assert before.torque_rmse > 15
    assert after.torque_rmse < 5
    assert after.excess_over_qp == pytest.approx(after.torque_rmse, rel=0.5)  # feasible: the bound is next to nothing
    assert after.infeasible_fraction < 0.01
    assert metrics.loss < before.loss


def test_metrics_on_a_case_known_by_hand():
    """One coordinate, two opposing muscles of 10 and 20 Nm, wanted 15 and 50 Nm; the network is constant."""
    network = MuscleNetwork(2, 1, 2, (), 1.0, 1.0)
    with th.no_grad():
        weight, bias = network.parameters()
        weight.zero_()
        bias.copy_(th.tensor([0.5, 5.0]))
    learner = MuscleLearner(network, np.array([0, 1]), loss_scale=10.0, effort_weight=0.5, pre_activation_weight=0.25)
    first, second = np.tanh([0.5, 5.0])
    tuples = np.array([[-10, 20, 15], [-10, 20, 50]], np.float32)
    metrics = learner.evaluate(tuples)
    torque = 20 * second - 10 * first
    error = np.array([torque - 15, torque - 50])
    effort = (first**2 + second**2) / 2
    assert metrics.torque_rmse == pytest.approx(np.sqrt((error**2).mean()), rel=1e-5)
    assert metrics.excess_over_qp == pytest.approx(np.sqrt((error**2).mean() - 30**2 / 2), rel=1e-4)
    assert metrics.infeasible_fraction == 0.5
    assert metrics.effort == pytest.approx(effort, rel=1e-5)
    assert metrics.saturation == 0.5
    assert metrics.co_contraction == pytest.approx(2 * 10 * first / (10 * first + 20 * second), rel=1e-5)
    assert metrics.loss == pytest.approx(((error / 10) ** 2).mean() + 0.5 * effort + 0.25 * (0.25 + 25) / 2, rel=1e-5)


@pytest.mark.parametrize("n_tuples", [2, 64, 100])
def test_every_tuple_is_used_whatever_the_batch_size(n_tuples):
    """A mean over one full and one partial batch, against the same by hand; with fewer tuples than a batch there is one."""
    learner = make_learner(learning_rate=0.0, n_epochs=1, reservoir_size=0)
    tuples = make_tuples(n_tuples)
    order = th.randperm(n_tuples, generator=th.Generator().manual_seed(0)).numpy()
    expected = np.mean([learner.evaluate(tuples[batch]).loss for batch in np.split(order, range(64, n_tuples, 64))])
    assert learner.update(make_buffer(tuples)).loss == pytest.approx(expected, rel=1e-5)


def test_no_tuples_is_an_error():
    buffer = make_buffer(np.full((4, len(PATTERN) + N_COORDS), np.nan, np.float32))
    with pytest.raises(ValueError, match="the muscle learner got no tuples"):
        make_learner().update(buffer)


@pytest.mark.parametrize("reservoir_size", [0, 100])
def test_continues_bit_for_bit(tmp_path, reservoir_size):
    learner = make_learner(reservoir_size=reservoir_size)
    for seed in range(3):
        learner.update(make_buffer(make_tuples(100, seed)))
    th.save(learner.state_dict(), tmp_path / "learner.pt")
    loaded = make_learner(reservoir_size=reservoir_size, seed=5)
    loaded.load_state_dict(th.load(tmp_path / "learner.pt", weights_only=True))
    fresh = make_learner(reservoir_size=reservoir_size, seed=5)
    fresh.network.load_state_dict(learner.network.state_dict())
    for seed in range(3, 6):
        buffer = make_buffer(make_tuples(100, seed))
        assert learner.update(buffer, 0.5) == loaded.update(buffer, 0.5)
        fresh.update(buffer, 0.5)
    assert states_equal(learner.state_dict(), loaded.state_dict())
    # With the weights alone it would not.
    assert not states_equal(learner.network.state_dict(), fresh.network.state_dict())


def test_a_saved_state_does_not_move_on():
    learner = make_learner(reservoir_size=10)
    learner.update(make_buffer(make_tuples(20)))
    reservoir = learner.state_dict()["reservoir"]
    before = reservoir.clone()
    learner.update(make_buffer(make_tuples(20, 1)))
    assert th.equal(reservoir, before)


def test_global_random_numbers_are_not_touched():
    th.manual_seed(3)
    before = th.get_rng_state()
    make_learner(reservoir_size=50).update(make_buffer(make_tuples(100)))
    assert th.equal(th.get_rng_state(), before)


def test_the_schedule_is_followed():
    learner = make_learner(learning_rate=lambda progress: 1e-3 * progress)
    learner.update(make_buffer(make_tuples(20)), 0.25)
    assert learner.optimizer.param_groups[0]["lr"] == 2.5e-4
    weights = copy.deepcopy(learner.network.state_dict())
    learner.update(make_buffer(make_tuples(20)), 0.0)
    assert states_equal(learner.network.state_dict(), weights)


@pytest.mark.parametrize(
    ("clip", "measure"), [({"max_grad_norm": 1e-3}, "norm"), ({"max_grad_norm": None, "max_grad_value": 1e-4}, "value")]
)
def test_gradients_are_clipped(clip, measure):
    sizes = {}
    for name, kwargs in (("clipped", clip), ("free", {"max_grad_norm": None})):
        learner = make_learner(n_epochs=1, **kwargs)
        learner.fit(make_tuples(50), 1, 0.0)
        gradient = th.cat([parameter.grad.flatten() for parameter in learner.parameters])
        sizes[name] = float(gradient.norm() if measure == "norm" else gradient.abs().max())
    limit = clip.get("max_grad_value", clip["max_grad_norm"])
    assert sizes["clipped"] == pytest.approx(limit, rel=1e-2)
    assert sizes["free"] > 2 * limit


def test_lower_levels_stay_as_they_are():
    learner = make_learner()
    learner.update(make_buffer(make_tuples(200)))
    network = learner.network
    first = copy.deepcopy(network.levels[0].state_dict())
    network.add_level((16, 16))
    upper = MuscleLearner(network, PATTERN, learning_rate=1e-2)
    second = copy.deepcopy(network.levels[1].state_dict())
    held_out = make_tuples(300, seed=7)
    before = upper.evaluate(held_out)
    for seed in range(5):
        upper.update(make_buffer(make_tuples(300, seed)))
    assert states_equal(network.levels[0].state_dict(), first)
    assert not states_equal(network.levels[1].state_dict(), second)
    assert upper.evaluate(held_out).torque_rmse < before.torque_rmse
    # The weight matters: with zero the first level is alone again.
    zero = np.concatenate((held_out, np.zeros((300, 1), np.float32)), axis=1)
    assert upper.evaluate(zero).torque_rmse == pytest.approx(before.torque_rmse, rel=1e-6)


def test_bad_settings_are_refused():
    network = MuscleNetwork(len(PATTERN), N_COORDS, N_MUSCLES)
    with pytest.raises(ValueError, match="pattern: expected 9 numbers, as the network has, got 3"):
        MuscleLearner(network, PATTERN[:3])
    with pytest.raises(ValueError, match="batch_size: expected at least 1, got 0"):
        MuscleLearner(network, PATTERN, batch_size=0)
    with pytest.raises(ValueError, match="tuples: expected 12 numbers each, or 13 with a weight, got 5"):
        MuscleLearner(network, PATTERN).fit(np.zeros((2, 5)), 1, 1e-3)


# --- the reservoir -----------------------------------------------------------------------------------------------------


def test_every_tuple_has_the_same_chance_to_stay():
    counts = np.zeros(40)
    for seed in range(300):
        learner = make_learner((), reservoir_size=10, seed=seed)
        tuples = make_tuples(40)
        tuples[:, 0] = np.arange(40)
        for part in np.split(tuples, 4):
            learner.remember(part)
        kept = learner.reservoir[:, 0].astype(int)
        assert len(set(kept)) == 10
        counts[kept] += 1
    # 300 draws with a chance of a quarter: 75 each, give or take four standard deviations.
    assert np.abs(counts - 75).max() < 4 * np.sqrt(300 * 0.25 * 0.75)


def test_a_reservoir_keeps_what_the_policy_no_longer_does():
    errors = {}
    for size in (0, 2000):
        learner = make_learner(reservoir_size=size)
        pretrain(learner, make_tuples(2000), n_epochs=8)
        narrow = make_tuples(100, seed=3, reach=0.05)
        for _ in range(15):
            learner.update(make_buffer(narrow))
        errors[size] = learner.evaluate(make_tuples(500, seed=4)).torque_rmse
    assert errors[2000] < 0.8 * errors[0]


# --- the buffer --------------------------------------------------------------------------------------------------------


def test_buffer():
    buffer = MuscleBuffer(2, 3, 4, 1)
    assert (buffer.samples.shape, buffer.samples.dtype) == ((2, 3, 5), np.float32)
    assert buffer.tuples().shape == (0, 6)
    memory = buffer.samples
    buffer.add(np.arange(15).reshape(3, 5), np.array([0.1, 0.2, 0.3]))
    np.testing.assert_array_equal(buffer.tuples()[:, :5], np.arange(15).reshape(3, 5))
    np.testing.assert_array_equal(buffer.tuples()[:, 5], np.array([0.1, 0.2, 0.3], np.float32))
    buffer.add(np.full((3, 5), np.nan))
    assert buffer.tuples().shape == (3, 6), "rows of a diverged simulation are left out"
    with pytest.raises(ValueError, match="the muscle buffer is full: it holds 2 steps"):
        buffer.add(np.zeros((3, 5)))
    buffer.reset()
    memory[:] = 7  # what a worker writes
    buffer.weights[:] = 1
    buffer.fill()
    np.testing.assert_array_equal(buffer.tuples(), np.array([[7, 7, 7, 7, 7, 1]] * 6))


# --- random poses ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("xml", [ARM, LEG], ids=["arm", "leg"])
def test_random_tuples(xml):
    interface = MuscleInterface(mujoco.MjModel.from_xml_string(xml))
    settings = MuscleSettings(stiffness=50.0)
    tuples = random_tuples(interface, settings, 42, seed=3)
    assert tuples.shape == (42, interface.n_packed + interface.n_coords)
    assert np.isfinite(tuples).all()
    np.testing.assert_array_equal(random_tuples(interface, settings, 42, seed=3), tuples)
    assert (random_tuples(interface, settings, 42, seed=4) != tuples).any()
    assert len(np.unique(tuples[:, 0])) > 5
    assert (tuples[:40:4, interface.n_packed :] != tuples[1:40:4, interface.n_packed :]).any(axis=1).all()


def test_pretraining_learns_the_arm():
    interface = MuscleInterface(mujoco.MjModel.from_xml_string(ARM))
    network = MuscleNetwork.for_interface(interface, (64, 64))
    np.testing.assert_allclose(network.torque_scale.numpy(), interface.torque_reach, rtol=1e-6)
    learner = MuscleLearner(network, interface.pattern)
    tuples = random_tuples(interface, MuscleSettings(stiffness=20.0), 2500)
    before = learner.evaluate(tuples[2000:])
    pretrain(learner, tuples[:2000])
    after = learner.evaluate(tuples[2000:])
    assert after.excess_over_qp < 0.35 * before.excess_over_qp
    twin = MuscleLearner(MuscleNetwork.for_interface(interface, (64, 64)), interface.pattern)
    pretrain(twin, tuples[:2000])
    assert twin.network.to_muscles() == network.to_muscles()


def test_the_seeds_scale_is_an_option():
    interface = MuscleInterface(mujoco.MjModel.from_xml_string(ARM))
    network = MuscleNetwork.for_interface(interface, torque_scale=200.0)
    assert set(network.torque_scale.tolist()) == set(network.packed_scale.tolist()) == {200.0}
    assert MuscleLearner(network, interface.pattern).loss_scale.tolist() == [50.0] * interface.n_coords
