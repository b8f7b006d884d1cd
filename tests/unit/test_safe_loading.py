"""Loading a stranger's file runs none of its code."""

import io
import pickle
import zipfile
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from stable_baselines3 import PPO
from stable_baselines3.common.save_util import save_to_zip_file
from torch import nn

from benchmarks.reliability.hostile import as_data, pickles, write_zips
from sb3_hrl.checkpoint import CheckpointError, UntrustedError, archive
from sb3_hrl.checkpoint.safe_pickle import load_data
from sb3_hrl.hppo import HPPO

SMALL: dict[str, Any] = {"n_steps": 16, "batch_size": 16, "n_epochs": 1, "policy_kwargs": {"net_arch": [4]}, "device": "cpu"}


@pytest.mark.parametrize("name", pickles(Path("x")))
def test_nothing_is_executed(name: str, tmp_path: Path) -> None:
    marker = tmp_path / "executed"
    data = as_data(policy_kwargs=pickles(marker)[name])
    with pytest.raises(UntrustedError, match=r"stranger\.zip: 'policy_kwargs' "):
        load_data(data, name="stranger.zip")
    assert not marker.exists()
    assert nn.Tanh.forward is not 1  # noqa: F632


def test_the_pickles_are_dangerous(tmp_path: Path) -> None:
    """What the test above refuses, Python's own unpickler would have done."""
    marker = tmp_path / "executed"
    pickle.loads(pickles(marker)["a stack global"])
    assert marker.exists()


def test_hostile_zips(tmp_path: Path) -> None:
    marker = tmp_path / "executed"
    model = HPPO("MlpPolicy", "CartPole-v1", **SMALL)
    model.save(tmp_path / "good.zip")
    members = dict(archive.read(tmp_path / "good.zip").members)
    del members["manifest.json"]
    for path in write_zips(tmp_path, members, marker):
        with pytest.raises((UntrustedError, CheckpointError, pickle.UnpicklingError)) as caught:
            HPPO.load(path)
        if path.stem != "weights":  # that one torch refuses, in its own words
            assert path.name in str(caught.value)
    assert not marker.exists()


def test_bombs(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as zipped:
        zipped.writestr("data", b"0" * 10**8)
    with pytest.raises(CheckpointError, match=r"bomb\.zip: the member 'data' claims to grow from \d+ to 100000000 bytes"):
        HPPO.load(tmp_path / "bomb.zip")
    # A directory that says less than there is.
    with zipfile.ZipFile(tmp_path / "lie.zip", "w") as zipped:
        zipped.writestr("data", b"0" * 1000)
    content = (tmp_path / "lie.zip").read_bytes()
    (tmp_path / "lie.zip").write_bytes(content.replace((1000).to_bytes(4, "little"), (10).to_bytes(4, "little")))
    with pytest.raises(CheckpointError, match=r"lie\.zip: "):
        HPPO.load(tmp_path / "lie.zip")
    with zipfile.ZipFile(tmp_path / "twice.zip", "w") as zipped:
        zipped.writestr("data", b"{}")
        with pytest.warns(UserWarning, match="Duplicate"):
            zipped.writestr("data", b"{}")
    with pytest.raises(CheckpointError, match="two members have the same name"):
        HPPO.load(tmp_path / "twice.zip")


def test_code_of_one_s_own_needs_trust(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = HPPO("MlpPolicy", "CartPole-v1", learning_rate=lambda progress: 1e-3 * progress, **SMALL)
    model.save(tmp_path / "own")
    with pytest.raises(UntrustedError, match=r"'learning_rate' holds .*trust=True.*SB3_HRL_TRUST=1.*custom_objects"):
        HPPO.load(tmp_path / "own")
    assert HPPO.load(tmp_path / "own", trust=True).learning_rate(0.5) == 5e-4  # type: ignore[operator]
    # As enjoy does it.
    replaced = {"learning_rate": 0.0, "lr_schedule": lambda _: 0.0, "clip_range": lambda _: 0.0}
    assert HPPO.load(tmp_path / "own", custom_objects=replaced).learning_rate == 0.0
    monkeypatch.setenv("SB3_HRL_TRUST", "1")
    assert HPPO.load(tmp_path / "own").learning_rate(0.5) == 5e-4  # type: ignore[operator]


def test_ordinary_content_is_known(tmp_path: Path) -> None:
    """All that an algorithm of SB3's may hold, from a file of its own."""
    kwargs = {"net_arch": {"pi": [4], "vf": [4]}, "activation_fn": nn.ELU, "optimizer_class": th.optim.RMSprop}
    model = PPO("MlpPolicy", "Pendulum-v1", n_steps=16, batch_size=16, n_epochs=1, policy_kwargs=kwargs, clip_range_vf=0.1)
    model.learn(16)
    model.save(tmp_path / "ppo.zip")
    loaded = HPPO.load(tmp_path / "ppo.zip")
    assert loaded.policy_kwargs == kwargs
    assert isinstance(loaded.ep_info_buffer, deque)
    obs = np.zeros((1, 3), np.float32)
    assert np.array_equal(model.predict(obs, deterministic=True)[0], loaded.predict(obs, deterministic=True)[0])
    space = spaces.Dict({"a": spaces.Box(0, 255, (3, 4), np.uint8), "b": spaces.Tuple([spaces.MultiBinary(3)])})
    space.seed(3)
    buffer = io.BytesIO()
    save_to_zip_file(
        buffer, data={"space": space, "numbers": {1: np.float32(2), "x": np.arange(3)}, "generator": np.random.default_rng(1)}
    )
    with zipfile.ZipFile(buffer) as zipped:
        data = load_data(zipped.read("data").decode())
    assert data["space"] == space
    assert data["space"].np_random.random() == space.np_random.random()
    assert data["generator"].random() == np.random.default_rng(1).random()
