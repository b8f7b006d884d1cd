"""Acting on images natively: the extractor's own features up to rounding, as long as nobody looks into it."""

import copy
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from stable_baselines3.common.vec_env import DummyVecEnv
from torch import nn

from sb3_hrl import native
from sb3_hrl.cnn import NatureCnn, NatureCnnPolicy
from sb3_hrl.hppo import HPPO
from sb3_hrl.native_images import NativeFeatures
from sb3_hrl.rollout.native_forward import native_forward
from tests.envs import ImageEnv


def _network(size: int = 64, white: float = 255.0) -> NatureCnn:
    th.manual_seed(0)
    network = NatureCnn(spaces.Box(0, 255, (3, size, size), np.uint8), 32, white=white)
    for parameter in network.parameters():
        nn.init.normal_(parameter, std=0.05)  # biases, too
    return network


def _images(n_images: int, size: int = 64) -> th.Tensor:
    generator = th.Generator().manual_seed(1)
    return th.randint(0, 256, (n_images, size, size, 3), dtype=th.uint8, generator=generator).permute(0, 3, 1, 2)


def _native(network: NatureCnn, images: th.Tensor, n_threads: int = 1) -> th.Tensor | None:
    network.native = network.native or NativeFeatures()
    return network.native.compute(network.cnn, network.linear, images, network.white, network.halves, n_threads)


def _plain(network: NatureCnn, images: th.Tensor) -> th.Tensor:
    """What the layers say in double precision, with the channels first."""
    double = copy.deepcopy(network).double()
    with th.no_grad():
        return double.linear(double.cnn(images.double().contiguous() / network.white))


def _assert_close(left: th.Tensor | None, right: th.Tensor) -> None:
    assert left is not None
    assert left.dtype == th.float32
    assert (left - right).abs().max() < 1e-5 * right.abs().max()


@pytest.mark.parametrize("n_images", [1, 16, 37])
@pytest.mark.parametrize(("size", "white"), [(64, 255.0), (84, 255.0), (50, 1.0)])
def test_the_features_are_those_of_the_layers(n_images: int, size: int, white: float) -> None:
    network, images = _network(size, white), _images(n_images, size)
    expected = _plain(network, images)
    _assert_close(_native(network, images), expected)
    wrong = _native(network, 255 - images)
    assert wrong is not None
    assert (wrong - expected).abs().max() > 1e-2 * expected.abs().max()


def test_products_of_sixteen_bits() -> None:
    whole, half, images = _network(), _network(), _images(20)
    half.halves = True
    with th.no_grad():
        torch_s = half(images)
    found, expected = _native(half, images), _native(whole, images)
    assert found is not None
    assert expected is not None
    assert found.dtype == th.float32
    assert (found - torch_s).norm() < 2**-8 * torch_s.norm()
    assert 0 < (found - expected).norm() < 2**-6 * expected.norm()


def test_the_number_of_threads_changes_no_bit() -> None:
    network, images = _network(), _images(70)
    one, *others = (_native(network, images, n_threads) for n_threads in (1, 2, 3, 2))
    assert one is not None
    for other in others:
        assert other is not None
        assert th.equal(one, other)


def test_rollouts_act_natively_and_nothing_else_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also between two rollouts, where the optimiser changes the weights without torch's knowledge."""
    seen: list[int] = []
    compute = NativeFeatures.compute

    def note(self: Any, layers: Any, connection: Any, images: th.Tensor, *args: Any) -> Any:
        answer = compute(self, layers, connection, images, *args)
        if images.dtype != th.uint8:
            return answer  # the values after a rollout, which SB3 asks for with floats
        _assert_close(answer, _plain(model.policy.features_extractor, images))  # type: ignore[arg-type]
        seen.append(len(images))
        return answer

    monkeypatch.setattr(NativeFeatures, "compute", note)
    venv = DummyVecEnv([lambda: ImageEnv(0), lambda: ImageEnv(1)])
    model = HPPO("NatureCnnPolicy", venv, n_steps=8, batch_size=8, n_epochs=2, learning_rate=0.1, seed=1, device="cpu")
    assert model.policy.optimizer.defaults["fused"]
    model.learn(2 * 16)
    assert seen == [2] * 2 * 8
    model.policy.predict_values(_images(3))
    assert len(seen) == 2 * 8
    assert model.policy.features_extractor.native is None


def _load(network: NatureCnn) -> None:
    network.load_state_dict({name: 2 * value for name, value in network.state_dict().items()})


def _replace(network: NatureCnn) -> None:
    network.cnn[2] = nn.Conv2d(32, 64, 4, 2)


def _assign(network: NatureCnn) -> None:
    network.linear[0].bias.data = th.ones(32)


@pytest.mark.parametrize("change", [_load, _replace, _assign])
def test_other_weights_are_noticed(change: Callable[[NatureCnn], None]) -> None:
    network, images = _network(), _images(5)
    before = _native(network, images)
    change(network)
    after = _native(network, images)
    _assert_close(after, _plain(network, images))
    assert before is not None
    assert after is not None
    assert not th.allclose(before, after)


def _hook(network: NatureCnn) -> None:
    network.cnn[3].register_forward_hook(lambda *_: None)


def _pad(network: NatureCnn) -> None:
    network.cnn[4] = nn.Conv2d(64, 64, 3, padding=1)
    network.linear[0] = nn.Linear(64 * 36, 32)


def _other_activation(network: NatureCnn) -> None:
    network.cnn[1] = nn.Tanh()


def _no_bias(network: NatureCnn) -> None:
    network.cnn[0] = nn.Conv2d(3, 32, 8, 4, bias=False)


def _no_last_bias(network: NatureCnn) -> None:
    network.linear[0] = nn.Linear(1024, 32, bias=False)


def _own_forward(network: NatureCnn) -> None:
    network.cnn[1].forward = th.tanh


@pytest.mark.parametrize("change", [_hook, _pad, _other_activation, _no_bias, _no_last_bias, _own_forward, NatureCnn.double])
def test_what_it_does_not_know_stays_with_torch(change: Callable[[NatureCnn], None]) -> None:
    network, images = _network(), _images(3)
    assert _native(network, images) is not None
    change(network)
    assert _native(network, images) is None


def test_a_failure_leaves_nothing_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    network, images = _network(), _images(3)
    assert _native(network, images) is not None
    _load(network)

    def fail(*_: Any) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr("sb3_hrl.native_images._make_network", fail)
        for _ in range(2):
            with pytest.raises(MemoryError):
                _native(network, images)
    _assert_close(_native(network, images), _plain(network, images))


class _Inverted(NatureCnn):
    """Looks at the negative."""

    def convolve(self, pixels: th.Tensor) -> th.Tensor:
        return super().convolve(255 - pixels)


def test_only_the_class_itself_is_native_and_steps_of_optimisers_are_noticed() -> None:
    space, images = spaces.Box(0, 255, (3, 64, 64), np.uint8), _images(3)
    for extractor, is_native in ((NatureCnn, True), (_Inverted, False)):
        policy = NatureCnnPolicy(
            space, spaces.Discrete(3), lambda _: 0.1, features_extractor_class=extractor, features_extractor_kwargs={}
        )
        network: Any = policy.features_extractor
        with native_forward(policy):
            assert (network.native is not None) == is_native
            for _ in range(2):
                network(images).sum().backward()
                with th.no_grad():
                    before = network(images)
                policy.optimizer.step()  # in its fused form: torch does not know
                with th.no_grad():
                    after = network(images)
                assert not th.allclose(before, after)
                if is_native:
                    _assert_close(after, _plain(network, images))
        assert network.native is None


def test_two_that_ask_at_once_are_both_answered() -> None:
    network, images = _network(), _images(64)
    expected = _native(network, images)
    assert expected is not None

    def ask(_: int) -> th.Tensor:
        with th.no_grad():
            return network(images)

    with ThreadPoolExecutor(2) as threads:
        for answer in threads.map(ask, range(20)):
            assert th.allclose(answer, expected, atol=1e-5)


def test_pixels_of_another_kind_or_order_stay_with_torch() -> None:
    network, images = _network(), _images(3)
    for others in (images.float(), images.contiguous(), images[:, :, ::2]):
        assert _native(network, others) is None


def test_a_copy_begins_anew() -> None:
    network, images = _network(), _images(3)
    expected = _native(network, images)
    for other in (copy.deepcopy(network), pickle.loads(pickle.dumps(network))):
        assert network.native is not None
        assert other.native is None
        assert expected is not None
        assert th.equal(_native(other, images), expected)  # type: ignore[arg-type]
        other.load_state_dict({name: 0 * value for name, value in other.state_dict().items()})
        assert not _native(other, images).any()  # type: ignore[union-attr]
    assert th.equal(_native(network, images), expected)  # type: ignore[arg-type]


def test_layers_that_do_not_fit_are_refused() -> None:
    def arrays(*shape: int) -> tuple[np.ndarray, np.ndarray]:
        return np.zeros(shape, np.float32), np.zeros(shape[0], np.float32)

    make = native.load().ImageNetwork
    good = {"convolutions": [(*arrays(4, 3, 2, 2), 1, 1)], "connection": arrays(5, 4 * 49), "image": (8, 8, 3)}
    assert make(**good, white=1.0, halves=False, n_threads=1).features(np.zeros((2, 8, 8, 3), np.uint8)).shape == (2, 5)
    for change, message in (
        ({"image": (8, 8, 1)}, "convolutions do not fit"),
        ({"image": (1, 8, 3)}, "convolutions do not fit"),
        ({"connection": arrays(5, 4 * 48)}, "last layer does not fit"),
        ({"connection": arrays(5, 4, 49)}, "two axes"),
    ):
        with pytest.raises(ValueError, match=message):
            make(**{**good, **change}, white=1.0, halves=False, n_threads=1)
    with pytest.raises(ValueError, match="expected an array of 384 numbers, got 192"):
        make(**good, white=1.0, halves=False, n_threads=1).features(np.zeros((2, 8, 4, 3), np.uint8))
