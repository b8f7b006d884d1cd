"""Images stay bytes with the channels last; the numbers are those of the plain way, up to rounding."""

import copy
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.policies import ActorCriticCnnPolicy
from stable_baselines3.common.torch_layers import NatureCNN
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv
from torch import nn
from torch.nn import functional as F

from sb3_hrl.cnn import ImpalaCnn, ImpalaCnnPolicy, NatureCnn, NatureCnnPolicy, _multiply
from sb3_hrl.hppo import HPPO
from sb3_hrl.portions import apply_in_portions
from sb3_hrl.rollout import ImageRolloutBuffer, TimeAwareRolloutBuffer
from tests.envs import ImageEnv

SPACE = spaces.Box(0, 255, (3, 64, 64), np.uint8)
KWARGS: dict[str, Any] = {"n_steps": 16, "batch_size": 16, "n_epochs": 2, "seed": 1, "device": "cpu"}


def _images(n_images: int = 70) -> th.Tensor:
    """Pixels [B, C, H, W] in the order [B, H, W, C], as a rollout has them; more than one portion."""
    generator = th.Generator().manual_seed(0)
    return th.randint(0, 256, (n_images, 64, 64, 3), dtype=th.uint8, generator=generator).permute(0, 3, 1, 2)


def _plain_impala(network: ImpalaCnn, images: th.Tensor) -> th.Tensor:
    """The same network written down plainly: one order of channels, nothing in place, pixels divided."""
    x = images.double().contiguous() / 255.0
    for section in network.sections:
        x = F.max_pool2d(section.conv(x), 3, 2, 1)  # type: ignore[operator]
        for first, second in section.blocks:  # type: ignore[union-attr]
            x = x + second(F.relu(first(F.relu(x))))
    return F.relu(network.linear(F.relu(x).flatten(1)))


def _gradients(network: th.nn.Module, features: th.Tensor) -> dict[str, th.Tensor]:
    network.zero_grad()
    (features * th.arange(features.shape[1])).sum().backward()
    return {name: parameter.grad.clone() for name, parameter in network.named_parameters() if parameter.grad is not None}


def _assert_close(left: dict[str, th.Tensor], right: dict[str, th.Tensor]) -> None:
    assert left.keys() == right.keys()
    for name, value in left.items():
        # In double precision: in single, rounding may let another pixel win a pooling, and move gradients by more than a bit.
        assert th.allclose(value, right[name], rtol=1e-9, atol=1e-11 * float(right[name].abs().max())), name


@pytest.mark.parametrize("channels", [(16, 32, 32), (4, 8)])
def test_impala_cnn_is_the_plain_network(channels: tuple[int, ...]) -> None:
    th.manual_seed(0)
    network, images = ImpalaCnn(SPACE, 32, channels, white=255.0).double(), _images()
    features, plain = network(images), _plain_impala(network, images)
    _assert_close({"features": features.detach()}, {"features": plain.detach()})
    _assert_close(_gradients(network, features), _gradients(network, plain))
    assert not th.allclose(features, _plain_impala(network, 255 - images), rtol=1e-2)


def test_nature_cnn_is_sb3_s() -> None:
    th.manual_seed(0)
    network, plain, images = NatureCnn(SPACE, 32, white=255.0).double(), NatureCNN(SPACE, 32).double(), _images()
    plain.load_state_dict(network.state_dict())
    network.portion = 32
    features, expected = network(images), plain(images.double().contiguous() / 255.0)
    _assert_close({"features": features.detach()}, {"features": expected.detach()})
    _assert_close(_gradients(network, features), _gradients(plain, expected))
    network.white = 1.0
    _assert_close({"features": network(images.double() / 255.0).detach()}, {"features": expected.detach()})
    assert not th.allclose(network(images), expected, rtol=1e-2)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("extractor", [ImpalaCnn, NatureCnn])
def test_the_number_of_threads_changes_no_bit(extractor: Any, precision: str) -> None:
    th.manual_seed(0)
    network, images = extractor(SPACE, 32, white=255.0, precision=precision), _images()
    network.portion = 16  # five portions, the last one smaller
    results = []
    for n_threads in (1, 2, 3, 2):
        network.n_threads = n_threads
        features = network(images)
        with th.no_grad():
            acting = network(images)
        assert _distance(acting, features.detach()) < (2**-6 if precision == "bfloat16" else 1e-6)
        results.append({"features": features.detach(), "acting": acting, **_gradients(network, features)})
    for result in results[1:]:
        assert all(th.equal(value, results[0][name]) for name, value in result.items())
    network.portion = 35  # other portions have other last bits
    assert not all(th.equal(value, results[0][name]) for name, value in _gradients(network, network(images)).items())


def test_acting_builds_no_graph_and_frozen_layers_get_no_gradient() -> None:
    network, images = NatureCnn(SPACE, 32, white=255.0), _images()
    graphs: list[bool] = []
    network.cnn[1].register_forward_hook(lambda _module, _inputs, output: graphs.append(output.requires_grad))
    network(images)
    assert graphs == [True, True, True]  # portions
    with th.no_grad():
        assert not network(images).requires_grad
    assert graphs[3:] == [False] * 9
    network.portion = 16  # the last layer goes in portions, too
    for frozen in (network.cnn[0], network.linear[0]):
        frozen.requires_grad_(False)
        network.zero_grad()
        network(images).sum().backward()
        assert network.cnn[0].weight.grad is None
        assert network.cnn[2].weight.grad is not None
        assert (network.linear[0].weight.grad is None) == (frozen is network.linear[0])


@pytest.mark.parametrize("n_rows", [48, 64, 70, 256])
def test_the_last_layer_s_products(n_rows: int) -> None:
    """Many rows go another way, as pixels of images; their number need not fit."""
    th.manual_seed(0)
    linear, x = nn.Linear(40, 24), th.randn(n_rows, 40, requires_grad=True)
    answer = _multiply(linear, x, halves=False)
    weights = th.randn(answer.shape)
    found = [answer, *th.autograd.grad(answer, (x, *linear.parameters()), weights)]
    plain, rows = copy.deepcopy(linear).double(), x.detach().double().requires_grad_()
    expected = [plain(rows), *th.autograd.grad(plain(rows), (rows, *plain.parameters()), weights.double())]
    for left, right in zip(found, expected, strict=True):
        assert left.is_contiguous()
        assert _distance(left.detach(), right.detach()) < 1e-6
        assert _distance(left.detach(), right.detach().flip(0)) > 0.1


def test_portions_give_the_batch_its_gradient() -> None:
    layer, x = nn.Linear(3, 2).double(), th.rand(7, 3, dtype=th.float64, requires_grad=True)
    expected = th.autograd.grad(layer(x).pow(3).sum(), (x, *layer.parameters()))
    for n_threads in (1, 2):
        rows = apply_in_portions(layer, layer.parameters(), x, 2, n_threads)
        found = th.autograd.grad(rows.pow(3).sum(), (x, *layer.parameters()))
        assert all(th.allclose(left, right, rtol=1e-12) for left, right in zip(found, expected, strict=True))
        assert not th.allclose(found[0], found[0].roll(2, 0))  # each portion's rows lie in their place


def test_an_error_in_a_portion_comes_out_and_ends_the_work() -> None:
    seen: list[float] = []

    def fail(portion: th.Tensor) -> th.Tensor:
        seen.append(float(portion[0, 0]))
        if portion[0, 0] == 4:
            raise RuntimeError("portion 2")
        return portion

    batch = th.arange(400.0).reshape(400, 1)
    for n_threads in (1, 2):
        seen.clear()
        with pytest.raises(RuntimeError, match="portion 2"):
            apply_in_portions(fail, (), batch, 2, n_threads)
        n_seen = len(seen)
        assert n_seen < 200
        time.sleep(0.05)
        assert len(seen) == n_seen


def test_a_graph_of_portions_can_be_kept_and_is_differentiated_once() -> None:
    network, images = NatureCnn(SPACE, 32, white=255.0), _images()
    features, parameters = network(images).sum(), list(network.parameters())
    first, second = (th.autograd.grad(features, parameters, retain_graph=True) for _ in range(2))
    assert all(th.equal(left, right) for left, right in zip(first, second, strict=True))
    th.autograd.grad(features, parameters)
    with pytest.raises(RuntimeError, match="a second time"):
        th.autograd.grad(features, parameters)
    x = th.rand(7, 2, requires_grad=True)
    (found,) = th.autograd.grad(apply_in_portions(th.tanh, (), x, 2).pow(2).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        found.sum().backward()


def test_hooks_on_parameters_see_whole_gradients() -> None:
    network, images = NatureCnn(SPACE, 32, white=255.0), _images()
    plain = _gradients(network, network(images))
    for parameter in network.parameters():
        parameter.register_hook(lambda gradient: 2 * gradient)
    for name, gradient in _gradients(network, network(images)).items():
        assert _distance(gradient, 2 * plain[name]) < 1e-5


def test_inference_mode_reaches_all_portions() -> None:
    network = NatureCnn(SPACE, 32, white=255.0)
    network.n_threads = 2
    for _ in range(5):
        with th.inference_mode():
            assert network(_images()).is_inference()


def test_what_stands_before_the_network_gets_its_gradient() -> None:
    network, images = NatureCnn(SPACE, 32, white=255.0), _images(4).float()
    contrast = nn.Parameter(th.ones(1))
    network(images * contrast).sum().backward()
    plain = NatureCNN(SPACE, 32)
    plain.load_state_dict(network.state_dict())
    other = nn.Parameter(th.ones(1))
    plain(images * other / 255.0).sum().backward()
    assert contrast.grad is not None
    assert other.grad is not None
    assert th.allclose(contrast.grad, other.grad, rtol=1e-4)


class _Adapted(nn.Linear):
    """A layer of somebody's own."""

    def forward(self, x: th.Tensor) -> th.Tensor:
        return super().forward(x) + 1


def test_layers_are_somebody_s_own() -> None:
    """Without a bias, of another class, with hooks: what they say counts, for few rows and for many."""
    network = NatureCnn(SPACE, 32, white=255.0)
    network.cnn[0] = nn.Conv2d(3, 32, 8, 4, bias=False)
    network.linear[0] = _Adapted(1024, 32)
    seen: list[int] = []
    network.linear[0].register_forward_hook(lambda _module, inputs, _output: seen.append(len(inputs[0])))
    plain = copy.deepcopy(network).double()
    for n_images in (2, 64):
        features, expected = network(_images(n_images)), plain.linear(plain.cnn(_images(n_images).double() / 255))
        assert _distance(features.detach(), expected.detach()) < 1e-5
        features.sum().backward()
        assert network.cnn[0].weight.grad is not None
    assert sum(seen) == 2 * (2 + 64)  # the copy's hook, too


def test_threads_of_portions_leave_torch_s_as_they_are() -> None:
    before = th.get_num_threads()
    network = NatureCnn(SPACE, 32, white=255.0)
    network.portion, network.n_threads = 16, 4
    seen: list[int] = []
    for layer in network.cnn:
        layer.register_forward_hook(lambda *_: seen.append(th.get_num_threads()))
    th.set_num_threads(2)
    try:
        network(_images())
        assert set(seen) == {1}
        assert th.get_num_threads() == 2
        with ThreadPoolExecutor(1) as later:
            assert later.submit(th.get_num_threads).result() == 2
    finally:
        th.set_num_threads(before)


def test_every_layer_keeps_the_order() -> None:
    """Between the pixels and the flat features no layer puts the channels first."""
    seen: list[th.Tensor] = []
    for network in (ImpalaCnn(SPACE, 32, white=255.0), NatureCnn(SPACE, 32, white=255.0)):
        seen.clear()
        for module in network.modules():
            if isinstance(module, th.nn.Conv2d):
                module.register_forward_hook(lambda _module, _inputs, output: seen.append(output))
        network(_images())
        assert len(seen) >= 2
        assert all(output.is_contiguous(memory_format=th.channels_last) for output in seen)
        seen.clear()
        network(_images().contiguous())
        assert not any(output.is_contiguous(memory_format=th.channels_last) for output in seen)


def test_weights_can_be_taken_as_a_vector() -> None:
    """As SB3 does it, which needs them in their plain order."""
    for policy_class in (NatureCnnPolicy, ImpalaCnnPolicy):
        policy = policy_class(SPACE, spaces.Discrete(3), lambda _: 1e-3)
        vector = policy.parameters_to_vector()
        policy.load_from_vector(2 * vector)
        assert np.array_equal(policy.parameters_to_vector(), 2 * vector)


@pytest.mark.parametrize(("size", "used"), [(64, 60), (84, 84), (36, 36), (50, 44)])
def test_pixels_that_reach_no_feature_are_left_out(size: int, used: int) -> None:
    space = spaces.Box(0, 255, (3, size, size), np.uint8)
    network, plain = NatureCnn(space, 32, white=255.0), NatureCNN(space, 32)
    plain.load_state_dict(network.state_dict())
    assert (network.height, network.width) == (used, used)
    image = th.rand(1, 3, size, size, requires_grad=True)
    plain(image).sum().backward()
    reached = image.grad[0].abs().sum(0) > 0  # type: ignore[index]
    assert reached[used - 1].any()
    assert reached[:, used - 1].any()
    assert not reached[used:].any()
    assert not reached[:, used:].any()


@pytest.mark.parametrize("extractor", [ImpalaCnn, NatureCnn])
def test_products_of_sixteen_bits(extractor: Any) -> None:
    """Features and gradients are near those of 32 bits, and of their type; the layers' own are of 16."""
    networks = []
    for precision in ("float32", "bfloat16"):
        th.manual_seed(0)
        networks.append(extractor(SPACE, 32, white=255.0, precision=precision))
    whole, half = networks
    seen: list[th.dtype] = []
    for module in half.modules():
        if isinstance(module, th.nn.Conv2d | th.nn.Linear):
            module.register_forward_hook(lambda _module, _inputs, output: seen.append(output.dtype))
    expected, features = whole(_images()), half(_images())
    assert features.dtype == th.float32
    assert set(seen) == {th.bfloat16}
    assert 0 < _distance(features.detach(), expected.detach()) < 2**-6
    gradients = _gradients(half, features)
    for name, gradient in _gradients(whole, expected).items():
        assert gradients[name].dtype == th.float32
        # A rounding may let another pixel win a pooling.
        assert 0 < _distance(gradients[name], gradient) < 2**-4, name


def _distance(values: th.Tensor, expected: th.Tensor) -> float:
    return float((values - expected).norm() / expected.norm())


def test_other_precisions_are_refused() -> None:
    with pytest.raises(ValueError, match="precision: expected 'float32' or 'bfloat16', got 'float16'"):
        HPPO("ImpalaCnnPolicy", _venv(), policy_kwargs={"features_extractor_kwargs": {"precision": "float16"}})


def test_only_images_are_accepted() -> None:
    for extractor in (ImpalaCnn, NatureCnn):
        with pytest.raises(ValueError, match=r"expected images of bytes, channels first, got Box\(.*float32\)"):
            extractor(spaces.Box(0, 1, (3, 64, 64), np.float32))


def _venv(n_envs: int = 2) -> VecEnv:
    return DummyVecEnv([lambda rank=rank: ImageEnv(rank) for rank in range(n_envs)])  # type: ignore[misc]


def _buffers() -> tuple[ImageRolloutBuffer, TimeAwareRolloutBuffer]:
    """The same rollout, in one buffer of each kind."""
    made: list[Any] = [
        kind(5, SPACE, spaces.Discrete(4), "cpu", n_envs=3) for kind in (ImageRolloutBuffer, TimeAwareRolloutBuffer)
    ]
    rng = np.random.default_rng(0)
    for _ in range(5):
        obs = rng.integers(0, 256, (3, 64, 64, 3), dtype=np.uint8).transpose(0, 3, 1, 2)
        numbers = [th.as_tensor(rng.normal(size=3)) for _ in range(2)]
        for buffer in made:
            buffer.add(obs, np.arange(3), np.ones(3), np.zeros(3), *numbers)
    for buffer in made:
        buffer.compute_returns_and_advantage(th.ones(3), np.zeros(3))
    return made[0], made[1]


def test_the_samples_are_those_of_the_plain_buffer() -> None:
    ours, plain = _buffers()
    for _ in range(2):  # two epochs
        batches = []
        for buffer in (ours, plain):
            np.random.seed(3)
            batches.append(list(buffer.get(4)))
        for left, right in zip(*batches, strict=True):
            assert all(th.equal(one, other) for one, other in zip(left[:6], right[:6], strict=True))
            assert left.observations.is_contiguous(memory_format=th.channels_last)
            assert not right.observations.is_contiguous(memory_format=th.channels_last)
        assert not th.equal(batches[0][0].observations, batches[1][1].observations)


def test_the_next_rollout_has_the_same_memory() -> None:
    ours, _ = _buffers()
    frames = ours.frames
    assert frames is not None
    assert frames.dtype == np.uint8
    assert np.shares_memory(frames, ours.observations)
    list(ours.get(4))
    ours.reset()
    assert ours.frames is frames
    assert ours.observations.shape == (5, 3, 3, 64, 64)


def test_sixteen_bits_learn_and_come_back(tmp_path: Any) -> None:
    kwargs = {**KWARGS, "policy_kwargs": {"features_extractor_kwargs": {"precision": "bfloat16"}}}
    model = HPPO("ImpalaCnnPolicy", _venv(), **kwargs).learn(64)
    model.save(tmp_path / "model")
    loaded = HPPO.load(tmp_path / "model", env=_venv())
    values = model.policy.predict_values(_images())
    assert th.equal(loaded.policy.predict_values(_images()), values)
    loaded.policy.features_extractor.halves = False  # type: ignore[assignment]
    assert not th.equal(loaded.policy.predict_values(_images()), values)


@pytest.mark.parametrize("policy", ["NatureCnnPolicy", "ImpalaCnnPolicy"])
def test_hppo_learns_as_by_the_plain_way(policy: str) -> None:
    """One update: after it rounding has changed actions, and the runs are not comparable any more."""
    models = []
    for buffer_class, seed in ((None, 1), (TimeAwareRolloutBuffer, 1), (None, 2)):
        plain_adam = {"optimizer_kwargs": {"eps": 1e-5}} if buffer_class else {}
        model = HPPO(policy, _venv(), rollout_buffer_class=buffer_class, policy_kwargs=plain_adam, **{**KWARGS, "seed": seed})
        models.append(model.learn(32))
    assert isinstance(models[0].rollout_buffer, ImageRolloutBuffer)
    assert models[0].policy.optimizer.defaults["fused"]
    assert not models[1].policy.optimizer.defaults["fused"]
    digests = [th.cat([parameter.detach().flatten() for parameter in model.policy.parameters()]) for model in models]
    assert (digests[0] - digests[1]).abs().max() < 2e-5  # a step of Adam is 3e-4
    assert (digests[0] - digests[2]).abs().max() > 1e-3


def test_the_policies_serve_ppo_too(tmp_path: Any) -> None:
    for policy in (NatureCnnPolicy, ImpalaCnnPolicy):
        model = PPO(policy, _venv(), **KWARGS).learn(32)
        model.save(tmp_path / "model")
        obs: Any = _venv().reset()
        loaded = PPO.load(tmp_path / "model")
        assert np.array_equal(model.predict(obs, deterministic=True)[0], loaded.predict(obs, deterministic=True)[0])
    wide = ImpalaCnnPolicy(SPACE, spaces.Discrete(3), lambda _: 1e-3, features_extractor_kwargs={"channels": [8, 8]})
    assert wide.features_extractor.white == 255.0
    assert len(wide.features_extractor.sections) == 2


def test_impala_s_network_begins_with_glorot_s_weights() -> None:
    def begin(policy_class: type[ActorCriticCnnPolicy], **kwargs: Any) -> ActorCriticCnnPolicy:
        th.manual_seed(0)
        return policy_class(SPACE, spaces.Discrete(15), lambda _: 1e-3, **kwargs)

    policy = begin(ImpalaCnnPolicy)
    for layer in policy.features_extractor.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            fans = layer.weight[0].numel() + layer.weight[:, 0].numel()
            assert 0.8 < layer.weight.abs().max() / np.sqrt(6 / fans) <= 1
            assert layer.bias is not None
            assert not layer.bias.any()
    images = _images()
    orthogonal = begin(ActorCriticCnnPolicy, features_extractor_class=ImpalaCnn, net_arch=[])
    with th.no_grad():
        # Rewards are scaled so that returns are of the size of one.
        assert policy.predict_values(images).abs().max() < 1
        assert orthogonal.predict_values(images).abs().max() > 2
        assert policy.action_net(policy.extract_features(images)).std() < 0.05  # SB3's small last layer is still there


def test_training_leaves_torch_one_thread_and_gives_the_others_back() -> None:
    """Portions have the threads; those of torch's own would wait in a loop on the environments' cores."""
    before = th.get_num_threads()
    model = HPPO("NatureCnnPolicy", _venv(), **KWARGS)
    seen: list[tuple[int, int | None]] = []

    class Look(BaseCallback):
        def _on_step(self) -> bool:
            extractor = self.model.policy.features_extractor
            seen.append((th.get_num_threads(), getattr(extractor, "n_threads", None)))
            return True

    th.set_num_threads(2)
    try:
        model.learn(32, Look())
        HPPO("CnnPolicy", _venv(), **KWARGS).learn(32, Look())
    finally:
        n_after = th.get_num_threads()
        th.set_num_threads(before)
    assert n_after == 2
    assert seen == [(1, 2)] * 16 + [(2, None)] * 16
    assert model.policy.features_extractor.n_threads is None


def test_with_sb3_s_cnn_hppo_is_ppo_bit_for_bit() -> None:
    parameters = []
    for algorithm in (HPPO, PPO):
        model = algorithm("CnnPolicy", _venv(), **KWARGS).learn(64)
        parameters.append([parameter.detach() for parameter in model.policy.parameters()])
    assert all(th.equal(left, right) for left, right in zip(*parameters, strict=True))
