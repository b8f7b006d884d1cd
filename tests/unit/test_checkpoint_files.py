"""The files: whole or refused, whatever happened to them."""

import json
import os
import random
import re
import resource
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from stable_baselines3.common.save_util import load_from_zip_file, save_to_zip_file

from sb3_hrl.checkpoint import Checkpointer, CheckpointError, archive, find, newest
from sb3_hrl.hppo import HPPO

SMALL = {"n_steps": 16, "batch_size": 16, "n_epochs": 1, "policy_kwargs": {"net_arch": [4]}, "device": "cpu"}


def _train(folder: Path, n_iterations: int = 3, **kwargs: object) -> HPPO:
    model = HPPO("MlpPolicy", "CartPole-v1", seed=0, **SMALL)  # type: ignore[arg-type]
    return model.learn(16 * n_iterations, callback=Checkpointer(folder, save_freq=16, **kwargs))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with checkpoints of the steps 16 and 32."""
    folder = tmp_path_factory.mktemp("run")
    _train(folder, n_iterations=2)
    return folder


def test_names_bear_the_step(run: Path) -> None:
    assert sorted(path.name for path in run.iterdir()) == [
        "rl_model_16_steps.metadata.yaml",
        "rl_model_16_steps.zip",
        "rl_model_32_steps.metadata.yaml",
        "rl_model_32_steps.zip",
    ]
    for path in run.glob("*.zip"):
        metadata = archive.read(path).metadata
        assert f"_{metadata['num_timesteps']}_" in path.name
        assert path.with_suffix(".metadata.yaml").read_bytes() == archive.read(path).members["metadata.yaml"]
        assert HPPO.load(path).num_timesteps == metadata["num_timesteps"]
        assert {"python", "torch", "mujoco", "stable-baselines3", "sb3-hrl"} <= metadata["versions"].keys()
        assert metadata["hyperparameters"]["n_steps"] == 16
    assert newest(run) == find(run) == run / "rl_model_32_steps.zip"


def test_another_format_gives_the_model_only(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = run / "rl_model_16_steps.zip"
    env = HPPO("MlpPolicy", "CartPole-v1", **SMALL).get_env()  # type: ignore[arg-type]
    monkeypatch.setattr(archive, "FORMAT", archive.FORMAT + 1)
    with pytest.warns(UserWarning, match=rf"{path.name}: it is in format {archive.FORMAT - 1}, .* begin anew"):
        model = HPPO.load(path, env=env)
    assert model.num_timesteps == 16
    assert model.learn(16, reset_num_timesteps=False).num_timesteps == 32


def test_sb3_reads_it(run: Path) -> None:
    data, params, _ = load_from_zip_file(run / "rl_model_32_steps.zip")
    assert data is not None
    assert data["num_timesteps"] == 32
    assert set(params) == {"policy", "policy.optimizer"}


def test_no_flipped_bit_goes_unnoticed(run: Path, tmp_path: Path) -> None:
    content = (run / "rl_model_32_steps.zip").read_bytes()
    archive.write(tmp_path / "good.zip", content)
    path, draw = tmp_path / "bad.zip", random.Random(0)
    # The ends of the file, where a zip has its directory, and anywhere.
    places = [*range(8 * (len(content) - 300), 8 * len(content), 7), *(draw.randrange(8 * len(content)) for _ in range(150))]
    for place in places:
        damaged = bytearray(content)
        damaged[place // 8] ^= 1 << place % 8
        path.write_bytes(damaged)
        with pytest.raises(CheckpointError, match=r"bad\.zip: ") as caught:
            archive.read(path)
        assert str(caught.value).endswith("good.zip")
    path.write_bytes(content)
    archive.read(path)


def test_no_truncation_goes_unnoticed(run: Path, tmp_path: Path) -> None:
    content = (run / "rl_model_32_steps.zip").read_bytes()
    draw = random.Random(1)
    for size in [0, 1, len(content) - 1, *(draw.randrange(len(content)) for _ in range(100))]:
        (tmp_path / "short.zip").write_bytes(content[:size])
        with pytest.raises(CheckpointError, match=r"short\.zip: "):
            archive.read(tmp_path / "short.zip")


def test_the_damaged_member_is_named(run: Path, tmp_path: Path) -> None:
    content = bytearray((run / "rl_model_32_steps.zip").read_bytes())
    with zipfile.ZipFile(run / "rl_model_32_steps.zip") as zipped:
        info = zipped.getinfo("state.bin")
    content[info.header_offset + 30 + len("state.bin") + 100] ^= 1
    (tmp_path / "bad.zip").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"state\.bin|CRC"):
        HPPO.load(tmp_path / "bad.zip")


def test_a_folder_s_newest_whole_one(run: Path, tmp_path: Path) -> None:
    for name in ("rl_model_16_steps.zip", "rl_model_32_steps.zip"):
        archive.write(tmp_path / name, (run / name).read_bytes())
    with (tmp_path / "rl_model_32_steps.zip").open("r+b") as file:
        file.truncate(1000)
    torn = tmp_path / ".rl_model_48_steps.zip.tmp-999999999-1"
    torn.write_bytes(b"half")
    with pytest.warns(UserWarning, match="rl_model_32_steps.zip is passed over"):
        assert find(tmp_path) == tmp_path / "rl_model_16_steps.zip"
    assert not torn.exists()
    with pytest.raises(FileNotFoundError, match="no whole resumable checkpoint"):
        find(tmp_path.parent / tmp_path.name / "..")
    with pytest.raises(FileNotFoundError, match="no such checkpoint or run folder"):
        find(tmp_path / "missing")


def test_the_last_ones_and_the_best_stay(tmp_path: Path) -> None:
    (tmp_path / "best_model.zip").write_bytes(b"")
    _train(tmp_path, n_iterations=6, keep_last=2)
    assert sorted(path.name for path in tmp_path.glob("*.zip")) == [
        "best_model.zip",
        "rl_model_80_steps.zip",
        "rl_model_96_steps.zip",
    ]
    assert len(list(tmp_path.glob("*.yaml"))) == 2


def test_another_run_s_later_checkpoints_cost_none_of_ours(tmp_path: Path) -> None:
    _train(tmp_path, n_iterations=4)
    with pytest.warns(UserWarning, match=r"has checkpoints of later steps than 0, of another run \(rl_model_64_steps.zip\)"):
        _train(tmp_path, n_iterations=2, keep_last=1)
    assert sorted(path.name for path in tmp_path.glob("*.zip")) == [
        "rl_model_32_steps.zip",
        "rl_model_48_steps.zip",
        "rl_model_64_steps.zip",
    ]


def test_inference_files_are_small_and_say_so(run: Path, tmp_path: Path) -> None:
    _train(tmp_path, save_optimizer=False)
    path = tmp_path / "rl_model_32_steps.zip"
    assert archive.read(path).metadata["kind"] == "inference"
    assert path.stat().st_size < (run / path.name).stat().st_size
    assert not HPPO.load(path).policy.optimizer.state
    assert newest(tmp_path) is None


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    torn = tmp_path / f".rl_model_16_steps.zip.tmp-{dead.pid}-1"
    others = [tmp_path / f".rl_model_16_steps.zip.tmp-{os.getppid()}-1", tmp_path / ".hidden"]
    for path in (torn, *others):
        path.write_bytes(b"half")
    _train(tmp_path)
    assert not torn.exists()
    assert all(path.exists() for path in others)  # the parent lives, and may be writing


def test_a_full_disk_costs_neither_the_old_one_nor_the_training(tmp_path: Path) -> None:
    _train(tmp_path, n_iterations=1)
    (old,) = tmp_path.glob("*.zip")
    content = old.read_bytes()
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limit[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            archive.write(old, content + b"more")
        with (
            pytest.warns(UserWarning, match="no checkpoint was written, and the one before is as it was"),
            pytest.warns(UserWarning, match="of another run"),
        ):
            model = _train(tmp_path, n_iterations=4)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, handler)
    assert model.num_timesteps == 64
    assert old.read_bytes() == content
    assert [path.name for path in tmp_path.iterdir() if path.suffix != ".yaml"] == [old.name]


def test_kills_while_training(tmp_path: Path) -> None:
    """The short form of benchmarks/reliability: at most the steps between two checkpoints are lost, and no bit of the end."""
    code = (
        "import json, sys; from pathlib import Path; from benchmarks.reliability.__main__ import measure_kills\n"
        "print(json.dumps(measure_kills(Path(sys.argv[1]), n_kills=5)))"
    )
    line = [sys.executable, "-W", "ignore", "-c", code, str(tmp_path)]
    found = json.loads(subprocess.run(line, capture_output=True, text=True, check=True).stdout.splitlines()[-1])
    assert found["kills"] == 5
    n_runs, n_same = re.findall(r"\d+", found["runs that came to their end"])
    assert n_runs == n_same
    assert 0 <= found["steps lost, at most"] <= found["steps between two checkpoints"]


def test_kills_while_writing(tmp_path: Path) -> None:
    """The short form of benchmarks/reliability: the name stands for one whole content or the other."""
    code = (
        "import sys; from pathlib import Path; from sb3_hrl.checkpoint import archive\n"
        "contents = [archive.seal(Path(sys.argv[1]).read_bytes(), {'x': bytes([n]) * 10**6}) for n in range(2)]\n"
        "print('go', flush=True)\n"
        "while True:\n"
        "    for content in contents: archive.write(Path(sys.argv[2]), content)"
    )
    plain, path, draw = tmp_path / "plain.zip", tmp_path / "written.zip", random.Random(2)
    save_to_zip_file(plain, data={})
    archive.write(path, archive.seal(plain.read_bytes(), {"x": b"\0"}))
    for _ in range(4):
        process = subprocess.Popen([sys.executable, "-c", code, plain, path], stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        try:
            process.wait(0.05 + draw.random() * 0.1)
        except subprocess.TimeoutExpired:
            process.kill()
        process.communicate()
        assert process.returncode == -signal.SIGKILL
        assert len(set(archive.read(path).members["x"])) == 1
        archive.remove_torn(tmp_path)
        assert not list(tmp_path.glob(".*"))
