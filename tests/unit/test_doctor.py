"""``sb3-hrl doctor`` finds what is wrong, and says what to do."""

import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch as th

from sb3_hrl.errors import NativeError
from sb3_hrl.experiments import doctor
from sb3_hrl.experiments.cli import main
from sb3_hrl.experiments.doctor import FIX, NOTE, OK, Line


def _only(check: Callable[[], Iterator[Line]]) -> Line:
    (line,) = check()
    return line


def test_versions_that_do_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [line.status for line in doctor._versions()] == [OK]
    monkeypatch.setattr(doctor, "requires", lambda _: ["torch<1", "no-such-package>=2", "numpy", "x; extra == 'y'"])
    lines = list(doctor._versions())
    assert [line.status for line in lines] == [FIX, FIX, OK]
    assert lines[0].text.endswith("does not fit - pip install 'torch<1'")
    assert lines[1].text == "no-such-package is missing - pip install 'no-such-package>=2'"


def test_the_port_of_tensorboard(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setattr(doctor, "TENSORBOARD_PORT", server.getsockname()[1])
        line = _only(doctor._tensorboard)
    assert line.status == NOTE
    assert line.text.endswith("tensorboard --logdir logs --port 6007")
    assert _only(doctor._tensorboard).status == OK


def test_the_hook(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SB3_HRL_NO_ZOO_HOOK", "1")
    line = _only(doctor._hook)
    assert line.status == NOTE
    assert "SB3_HRL_NO_ZOO_HOOK" in line.text


@pytest.mark.parametrize(
    ("name", "value", "check", "remedy"),
    [
        ("ENOUGH_MEMORY", 1e18, doctor._memory, "-params n_envs:N"),
        ("ENOUGH_DISK", 1e18, doctor._disk, "-f FOLDER"),
    ],
)
def test_scarce(
    monkeypatch: pytest.MonkeyPatch, name: str, value: float, check: Callable[[], Iterator[Line]], remedy: str
) -> None:
    assert _only(check).status == OK
    monkeypatch.setattr(doctor, name, value)
    line = _only(check)
    assert line.status == FIX
    assert remedy in line.text


def test_actors_need_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "ENOUGH_FOR_ACTORS", 10**6)
    assert "n_actors gains little" in _only(doctor._actors).text
    monkeypatch.setattr(doctor, "ENOUGH_FOR_ACTORS", 1)
    assert re.search(r"-params n_actors:\d+; no faster\?", _only(doctor._actors).text)


@pytest.mark.parametrize("is_fast", [False, True])
def test_products_of_16_bits(monkeypatch: pytest.MonkeyPatch, is_fast: bool) -> None:
    monkeypatch.setattr(th.cpu, "_is_avx512_bf16_supported", lambda: is_fast)
    monkeypatch.setattr(th.cpu, "_is_amx_tile_supported", lambda: False)
    assert any("precision: bfloat16" in line.text for line in doctor._processors()) == is_fast


def test_the_latest_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert _only(doctor._runs).text.startswith("there is no run in logs; name one, or train first")
    params = tmp_path / "logs/ppo/CartPole-v1_1/CartPole-v1"
    params.mkdir(parents=True)
    (params / "args.yml").write_text("algo: ppo\nenv: CartPole-v1\n")
    line = _only(doctor._runs)
    assert (line.status, "has no model yet" in line.text) == (NOTE, True)
    (params.parent / "CartPole-v1.zip").touch()
    line = _only(doctor._runs)
    assert line.status == OK
    assert line.text.startswith("1 in logs; the latest has logs/ppo/CartPole-v1_1/CartPole-v1.zip")


def test_a_native_module_that_does_not_load(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise NativeError("built for another torch. Rebuild it.")

    monkeypatch.setattr(doctor.native, "build_info", fail)
    assert _only(doctor._native) == Line(FIX, "built for another torch. Rebuild it.")


def test_a_check_that_fails_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def faint() -> Iterator[Line]:
        raise OSError("no /proc")

    monkeypatch.setattr(doctor, "CHECKS", {"memory": faint, "python": doctor._python})
    assert main(["doctor"]) == 1
    out = capsys.readouterr().out
    assert "fix   memory      the check itself failed: OSError: no /proc" in out
    assert "ok    python" in out
    assert out.endswith("1 thing to mend.\n")
    monkeypatch.setattr(doctor, "CHECKS", {"python": doctor._python})
    assert main(["doctor"]) == 0
    assert capsys.readouterr().out.endswith("Nothing to mend.\n")
