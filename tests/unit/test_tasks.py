"""Tasks as data: what a file may say, and what is said about a wrong one."""

import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from sb3_hrl import native
from sb3_hrl.env_ids import MUSCLE_ENVS
from sb3_hrl.envs import Engine, NoNativeForm, TaskError, load_task, native_tasks
from sb3_hrl.envs.task import _NORM_ORDERS, RENDER_OPTIONS, norm_order

SWING = """\
id: Swing-v0
max_episode_steps: 20
options:
  weight: 0.5
  limit: [-1.0, 1.0]
  is_short: false
  body: arm
model: swing.xml
frame_skip: 2
observation:
  - {term: qpos}
  - {term: qvel, clip: [-5, 5]}
  - {term: body_xpos, body: $body, unless: $is_short}
values:
  angle: {term: qpos, index: 0}
  speed: {term: rate, of: angle}
  is_inside: {term: within, of: angle, range: $limit}
  effort: {term: action_squares}
  fast: {term: weighted, of: speed, weight: $weight}
  lazy: {term: cost, of: effort, weight: 0.1}
arrays:
  force: {term: qfrc_actuator}
reward: [fast, lazy]
terminate: {unless: is_inside}
reset:
  - {term: qpos_uniform, scale: 0.1}
info: [angle, force, lazy]
reset_info: [angle]
"""
MODEL = """\
<mujoco>
  <worldbody>
    <body name="arm"><joint name="hinge" axis="0 1 0"/><geom type="sphere" size="0.1" pos="0 0 -0.5"/></body>
  </worldbody>
  <actuator><motor joint="hinge" ctrlrange="-2 3"/></actuator>
</mujoco>
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "swing.xml").write_text(MODEL)
    (tmp_path / "swing.yaml").write_text(SWING)
    return tmp_path


def test_a_task_of_ones_own_needs_no_cpp(folder):
    task = load_task(folder / "swing.yaml", {"weight": 2})
    assert (task.id, task.frame_skip, task.max_episode_steps, task.dt) == ("Swing-v0", 2, 20, 0.004)
    assert (task.model_path, task.path) == (folder / "swing.xml", folder / "swing.yaml")
    assert task.options == {"weight": 2, "limit": (-1.0, 1.0), "is_short": False, "body": "arm"}
    assert task.observation_space.shape == (5,)
    assert (task.action_space.low, task.action_space.high) == (-2, 3)
    assert (task.info_keys, task.reset_info_keys) == (("angle", "force", "lazy"), ("angle",))
    assert task.info_columns == {"angle": 0, "force": slice(1, 2), "lazy": 2}
    assert load_task(folder / "swing.yaml", {"is_short": True}).observation_space.shape == (2,)
    assert pickle.loads(pickle.dumps(task)) == task

    engine = Engine(task, 1, seeds=[0])
    engine.reset()
    before = engine.qpos_qvel(0)[0][0]
    action = np.array([[1.5]], np.float32)
    result = engine.step(action)
    after = engine.qpos_qvel(0)[0][0]
    info = task.info(result.infos[0])
    assert info == {"angle": after, "force": np.array([1.5]), "lazy": info["lazy"]}
    assert info["lazy"] == pytest.approx(-0.1 * 1.5**2)
    assert result.rewards[0] == 2 * ((after - before) / 0.004) + info["lazy"]


def test_actions_may_be_listed(folder):
    (folder / "listed.yaml").write_text(SWING + "actions: [[-2], [0], [3]]\n")
    plain, listed = (load_task(folder / f"{name}.yaml") for name in ("swing", "listed"))
    assert listed.action_space == spaces.Discrete(3)
    assert listed.task_hash != plain.task_hash
    engines = [Engine(task, 2, seeds=[1, 2]) for task in (plain, listed)]
    for engine in engines:
        engine.reset()
    controls = [0, 2], [1, 2], [0, 0]
    for row in controls:
        left = engines[0].step(np.array([[-2, 0, 3][number] for number in row], np.float32).reshape(2, 1))
        right = engines[1].step(np.array(row))
        for here, there in zip(left, right, strict=True):
            assert np.array_equal(here, there)
    for actions, message in (
        (np.array([0, 3]), r"actions: expected numbers from 0 to 2, got \[0, 3\]"),
        (np.array([0, -1]), r"actions: expected numbers from 0 to 2, got \[0, -1\]"),
        (np.zeros((2, 1), np.float32), "actions: expected int64, got float32"),
        (np.zeros(3, np.int64), r"actions: expected the shape \(2,\), got \(3,\)"),
    ):
        with pytest.raises(ValueError, match=message):
            engines[1].step(actions)


def test_the_time_limit_can_be_changed(folder):
    assert load_task("Hopper-v5").max_episode_steps == 1000
    assert load_task("Hopper-v5", max_episode_steps=7).max_episode_steps == 7
    assert load_task("Hopper-v5", max_episode_steps=-1).max_episode_steps is None
    (folder / "swing.yaml").write_text(SWING.replace("max_episode_steps: 20\n", ""))
    assert load_task(folder / "swing.yaml").max_episode_steps is None
    with pytest.raises(TaskError, match=r"max_episode_steps: expected a whole number >= 1, got 0$"):
        load_task("Hopper-v5", max_episode_steps=0)


# --- a wrong file --------------------------------------------------------------------------------------------------------

# (what is written instead of what, line, the message)
WRONG = [
    ("reward: [fast, lazy]", "rewards: [fast, lazy]", None, "these keys are missing: reward"),
    ("reward: [fast, lazy]", "rewards: [fast, lazy]", 23, "rewards: unknown key, did you mean 'reward'?"),
    ("term: rate,", "term: raet,", 16, "values.speed.term: there is no value term 'raet', did you mean 'rate'?"),
    ("{term: rate, of: angle}", "rate", 16, "values.speed: expected a mapping with the key 'term', got 'rate'"),
    (
        "of: angle}",
        "of: angel}",
        16,
        "values.speed.of: expected the name of a value that stands above, did you mean 'angle'?, got 'angel'",
    ),
    ("of: angle}", "of: fast}", 16, "values.speed.of: expected the name of a value that stands above, got 'fast'"),
    (
        "{term: qpos, index: 0}",
        "{term: qpos, indx: 0}",
        15,
        "values.angle.indx: unknown argument of qpos, did you mean 'index'? It takes: index",
    ),
    (
        "{term: qpos, index: 0}",
        "{term: qpos, index: 1}",
        15,
        "values.angle.index: expected a whole number from -1 to 0, got 1",
    ),
    ("{term: qpos, index: 0}", "{term: qpos}", 15, "values.angle.index: the term 'qpos' needs this argument"),
    ("index: 0}", "index: 0.5}", 15, "values.angle.index: expected a whole number, got 0.5"),
    ("index: 0}", "index: zero}", 15, "values.angle.index: expected a number, got 'zero'"),
    (
        "weight: 0.1}",
        "weight: 0.1, is_single: true}",
        20,
        "values.lazy.is_single: unknown argument of cost. It takes: of, weight, clip",
    ),
    ("clip: [-5, 5]", "clip: 5", 12, "observation[1].clip: expected a list of two numbers, got 5"),
    ("clip: [-5, 5]", "clip: [-5, x]", 12, "observation[1].clip: expected a list of two numbers, got [-5, 'x']"),
    ("term: qvel,", "term: qve,", 12, "observation[1].term: there is no array term 'qve', did you mean 'qvel'?"),
    ("{term: qpos}", "{term: qpos, start: 3}", 11, "observation[0].start: expected a whole number from -1 to 1, got 3"),
    (
        "unless: $is_short",
        "unless: $is_long",
        13,
        "observation[2].unless: there is no option 'is_long', did you mean 'is_short'?",
    ),
    ("unless: $is_short", "unless: $weight", 13, "observation[2].unless: expected true, false or an option that is, got 0.5"),
    ("body: $body", "body: leg", 13, "observation[2].body: the model has no body of that name, got 'leg'"),
    ("body: $body", "body: 2", 13, "observation[2].body: expected the name of a body, or a number from 0 to 1, got 2"),
    ("$limit", "$limits", 17, "values.is_inside.range: there is no option 'limits', did you mean 'limit'?"),
    (
        "[fast, lazy]",
        "[fast, lasy]",
        23,
        "reward: expected the name of a value or a list of names, did you mean 'lazy'?, got 'lasy'",
    ),
    (
        "unless: is_inside",
        "unless: is_outside",
        24,
        "terminate.unless: expected the name of a value that stands above, did you mean 'is_inside'?, got 'is_outside'",
    ),
    ("{unless: is_inside}", "{unles: is_inside}", 24, "terminate.unles: unknown key, did you mean 'unless'?"),
    ("qpos_uniform", "qpos_unifrom", 26, "reset[0].term: there is no reset term 'qpos_unifrom', did you mean 'qpos_uniform'?"),
    ("index: 0}", "index: 0, when: $is_short}", 15, "values.angle.when: unknown argument of qpos. It takes: index"),
    ("info: [angle, force", "info: [angle, angle", 27, "info[1]: 'angle' is there twice"),
    ("info: [angle, force", "info: [angle, forces", 27, "info[1]: there is no value or array 'forces', did you mean 'force'?"),
    (
        "reset_info: [angle]",
        "reset_info: [speed]",
        16,
        "values.speed.term: it needs a step, so neither a reset's info nor a rate can use it",
    ),
    ("model: swing.xml", "model: $modle", 8, "model: there is no option 'modle'"),
    ("model: swing.xml", "model: 3", 8, "model: expected the name of a file, got 3"),
    ("frame_skip: 2", "actions: [[0], [9]]", 9, "actions[1]: expected a list of 1 numbers within [-2, 3], got [9]"),
    ("frame_skip: 2", "actions: [[0, 1]]", 9, "actions[0]: expected a list of 1 numbers within [-2, 3], got [0, 1]"),
    ("frame_skip: 2", "actions: [x]", 9, "actions[0]: expected a list of 1 numbers within [-2, 3], got 'x'"),
    ("frame_skip: 2", "actions: 3", 9, "actions: expected a list, got 3"),
    ("frame_skip: 2", "actions: []", 9, "actions: expected at least one list of controls"),
    ("frame_skip: 2", "frame_skip: 0", 9, "frame_skip: expected a whole number >= 1, got 0"),
    (
        "weight: 0.5",
        "weight: {a: 1}",
        4,
        "options.weight: expected a number, true, false, text, two numbers, or {default: ..., or: ...} of these, got {'a': 1}",
    ),
    ("weight: 0.5", "weight: 0.5\n  weight: 1", 5, "'weight' is given twice, first in line 4"),
    ("values:", "values: 3\nvalue:", 15, "value: unknown key, did you mean 'values'?"),
    ("term: qpos}", "term: qpos", 12, "column 5: a bracket is not closed, or a comma is missing"),
]


@pytest.mark.parametrize(
    ("right", "wrong", "line", "message"), WRONG, ids=[f"{row[1][:30]}-{i}" for i, row in enumerate(WRONG)]
)
def test_a_wrong_file_gets_file_line_key_and_suggestion(folder, right, wrong, line, message):
    assert right in SWING
    path = folder / "swing.yaml"
    path.write_text(SWING.replace(right, wrong, 1))
    with pytest.raises(TaskError) as error:
        load_task(path)
    place = f"{path}:{line}: " if line else f"{path}: "
    assert place + message in str(error.value).splitlines()


def test_all_problems_are_told_at_once(folder):
    path = folder / "swing.yaml"
    path.write_text(SWING.replace("term: rate,", "term: raet,").replace("qpos_uniform", "qpos_unifrom"))
    with pytest.raises(TaskError) as error:
        load_task(path)
    assert [line.split(": ")[1] for line in str(error.value).splitlines()] == ["values.speed.term", "reset[0].term"]


def test_a_file_or_model_that_is_missing_or_broken(folder):
    with pytest.raises(TaskError, match=r"gone.yaml: the task cannot be read: "):
        load_task(folder / "gone.yaml")
    (folder / "list.yaml").write_text("- 1\n")
    with pytest.raises(TaskError, match=r"list.yaml:1: expected a mapping with the keys id, "):
        load_task(folder / "list.yaml")
    (folder / "swing.xml").write_text("<mujoco><nonsense/></mujoco>")
    with pytest.raises(TaskError, match=r"^MuJoCo cannot compile the model .*swing.xml: (.|\n)*nonsense"):
        load_task(folder / "swing.yaml")
    (folder / "swing.xml").unlink()
    with pytest.raises(TaskError, match=r"^The model .*swing.xml does not exist$"):
        load_task(folder / "swing.yaml")
    with pytest.raises(TaskError, match=r"^The model .*assets/hoper.xml does not exist$"):
        load_task("Hopper-v5", {"xml_file": "hoper.xml"})


# --- options -------------------------------------------------------------------------------------------------------------


def test_an_unknown_option_is_refused_with_the_nearest():
    with pytest.raises(
        TaskError, match=r"^Hopper-v5 has no option 'helthy_reward', did you mean 'healthy_reward'\? It has: xml_"
    ):
        load_task("Hopper-v5", {"helthy_reward": 1.0})


def test_options_of_the_picture_are_taken_and_change_nothing():
    options: dict[str, Any] = dict.fromkeys(RENDER_OPTIONS)
    task = load_task("Hopper-v5", options | {"render_mode": "rgb_array", "default_camera_config": {"distance": 3.0}})
    assert task.task_hash == load_task("Hopper-v5").task_hash
    assert task.options == load_task("Hopper-v5").options


@pytest.mark.parametrize(
    ("env_id", "options", "reason"),
    [
        (
            "Hopper-v5",
            {"terminate_when_unhealthy": 1},
            "terminate_when_unhealthy has no native form for 1: it takes true or false",
        ),
        ("Hopper-v5", {"healthy_reward": True}, "healthy_reward has no native form for True: it takes a number"),
        ("Hopper-v5", {"healthy_z_range": 0.7}, "healthy_z_range has no native form for 0.7: it takes two numbers"),
        ("Hopper-v5", {"healthy_reward": np.longdouble(1)}, "it takes a number"),
        ("Ant-v5", {"main_body": True}, "main_body has no native form for True: it takes a number or text"),
        ("Humanoid-v5", {"include_cvel_in_observation": np.True_}, "it takes true or false"),
        ("Hopper-v4", {}, "^Hopper-v4 is not a native task, did you mean 'Hopper-v5'?"),
        ("CartPole-v1", {}, "^CartPole-v1 is not a native task"),
        (
            "InvertedPendulum-v5",
            {"xml_file": "inverted_double_pendulum.xml"},
            "declares 4 observations, but with this model it would have 6",
        ),
    ],
)
def test_what_has_no_native_form_is_told_apart_from_what_is_wrong(env_id, options, reason):
    with pytest.raises(NoNativeForm, match=re.escape(reason).replace(r"\^", "^")):
        load_task(env_id, options)


def test_a_frame_skip_that_is_not_whole():
    with pytest.raises(TaskError, match=r"hopper.yaml:\d+: frame_skip: expected a whole number >= 1, got 2.5$"):
        load_task("Hopper-v5", {"frame_skip": 2.5})


def test_a_model_that_does_not_fit_the_task():
    with pytest.raises(TaskError, match=r"observation\[4\].body: the model has no body of that name, got 'fingertip'"):
        load_task("Reacher-v5", {"xml_file": "hopper.xml"})
    with pytest.raises(
        TaskError, match=r"values.body_x.body: the model has no body of that name, did you mean 'torso'\?, got 'torsoo'"
    ):
        load_task("Ant-v5", {"main_body": "torsoo"})


def test_the_weights_follow_numpys_promotion():
    """A Python number times a float32 is single under NumPy 2, double under NumPy 1; a float64 is double under both."""

    def is_single(options: dict[str, Any]) -> float:
        task = load_task("HalfCheetah-v5", options)
        position = next(info.position for info in task.spec.info if info.key == "reward_ctrl")
        return task.spec.values[position].arguments["is_single"][0]

    assert is_single({}) == float((0.1 * np.float32(1)).dtype == np.float32)
    assert is_single({"ctrl_cost_weight": np.float64(0.1)}) == 0.0
    assert is_single({"ctrl_cost_weight": np.float32(0.1)}) == 1.0


def test_the_order_of_a_norm_is_found_out():
    vectors = [np.random.default_rng(seed).standard_normal(3) for seed in range(1000, 1200)]
    agreeing = [
        order
        for order, total in enumerate(_NORM_ORDERS)
        if all(float(np.dot(vector, vector)) == total(vector.tolist()) for vector in vectors)
    ]
    assert agreeing == [norm_order()]


# --- the files that come with the package --------------------------------------------------------------------------------


def test_the_packaged_tasks_have_a_readable_head():
    for env_id, path in native_tasks().items():
        text = path.read_text()
        head = f"# {env_id}: " if env_id in MUSCLE_ENVS else f"# {env_id} of gymnasium.\n"
        assert text.startswith(head)
        assert f"\nid: {env_id}\n" in text
        assert "\t" not in text


def test_the_terms_are_documented():
    page = (Path(__file__).parents[2] / "docs" / "tasks.md").read_text()
    for term in native.load().known_terms():
        assert f"`{term.name}`" in page, term.name
