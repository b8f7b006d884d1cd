"""
A task as a gymnasium environment, readable: it does with MuJoCo's Python bindings what the native engine does, and gives the
same numbers to the last bit.
"""

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import mujoco
import numpy as np
from gymnasium.envs.mujoco.mujoco_rendering import MujocoRenderer

from sb3_hrl.carried import MUSCLE_SAMPLE, unpack
from sb3_hrl.envs.task import Task, Term, known_terms, load_task
from sb3_hrl.envs.terms import ARRAYS, RESETS, STEP_ONLY, VALUES, Arguments, Moment, field_rows
from sb3_hrl.muscle import MuscleControl, MuscleInterface, Muscles
from sb3_hrl.philox import RandomStream

_BREAKDOWNS = [int(getattr(mujoco.mjtWarning, f"mjWARN_BAD{what}")) for what in ("QPOS", "QVEL", "QACC")]
_STATE = mujoco.mjtState.mjSTATE_INTEGRATION
_MARKER_RGBA = np.array([0.10, 0.66, 0.36, 0.75])  # the arm's target has the same


class MuscleEnv(gym.Env[np.ndarray, np.ndarray]):
    """
    One environment of a task, by default with muscles. Seeds give the native engine's episodes.

    Under the actuation ``muscle_hrl`` it refuses to step until ``set_muscles`` has given it what turns torques into
    activations, or an action has brought it along.

    :param env_file: the task's YAML file, or a model (``.xml``) with the default task
    :param render_mode: as gymnasium's
    :param width: of the pictures
    :param height: of the pictures
    :param camera_id: by default the model's first camera
    :param camera_name: instead of the id
    :param default_camera_config: for a model without a camera
    :param max_geom: how many geoms are drawn at most
    :param visual_options: as gymnasium's
    :param options: of the task
    """

    metadata: dict[str, Any] = {  # noqa: RUF012
        "render_modes": ["human", "rgb_array", "depth_array", "rgbd_tuple"],
        "render_fps": 50,
    }

    def __init__(
        self,
        env_file: str = "muscle_env.yaml",
        render_mode: str | None = None,
        width: int = 480,
        height: int = 480,
        camera_id: int | None = None,
        camera_name: str | None = None,
        default_camera_config: dict[str, Any] | None = None,
        max_geom: int = 1000,
        visual_options: dict[int, bool] | None = None,
        **options: Any,
    ) -> None:
        self.task = task = load_task("MuscleEnv-v0", {"env_file": env_file, **options})
        self.observation_space, self.action_space = task.observation_space, task.action_space
        self.metadata = dict(task.metadata)
        self.render_mode = render_mode
        self.frame_skip, self.dt = task.frame_skip, task.dt
        self.model = mujoco.MjModel.from_binary_path("model.mjb", {"model.mjb": task.spec.model})
        self.model.vis.global_.offwidth = max(self.model.vis.global_.offwidth, width)
        self.model.vis.global_.offheight = max(self.model.vis.global_.offheight, height)
        self.data = mujoco.MjData(self.model)
        self.control: MuscleControl | None = None
        self._muscles_version: str | None = None
        if task.muscles is not None:
            interface = MuscleInterface(self.model, task.muscles.joints)
            self.control = MuscleControl(interface, task.muscles, task.frame_skip)
        rates = [int(term.arguments["of"][0]) for term in task.spec.values if term.term == "rate"]
        self._before_values = self._with_what_they_need(rates)
        self._reset_values = self._with_what_they_need([info.position for info in task.spec.reset_info if not info.is_array])
        self._random: RandomStream | None = None
        self._n_steps = 0
        self._last_obs = np.zeros(self.observation_space.shape or ())
        if camera_id is None and camera_name is None and self.model.ncam:
            camera_id = 0
        self.mujoco_renderer = MujocoRenderer(
            self.model, self.data, default_camera_config, width, height, max_geom, camera_id, camera_name, visual_options
        )

    @property
    def muscle_task(self) -> Task:
        """The task; HPPO asks for it."""
        return self.task

    # --- muscles --------------------------------------------------------------------------------------------------------

    def set_muscles(self, muscles: Any) -> None:
        """
        :param muscles: see ``MuscleControl.set_muscles``
        """
        if self.control is None:
            raise ValueError(f"{self.task.id} has no muscles")
        if isinstance(muscles, Muscles):
            muscles.check_body(self.task.body, self.task.id)
        version = getattr(muscles, "version", None)
        if version is None or version != self._muscles_version:
            self.control.set_muscles(muscles)
            self._muscles_version = version

    # --- episodes -------------------------------------------------------------------------------------------------------

    def reset(self, *, seed: int | None = None, options: Mapping[str, Any] | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None or self._random is None:
            self._random = RandomStream(int(self.np_random.integers(2**63)) if seed is None else seed)
            if self.control is not None:
                self.control.seed(self._random.seed)
        mujoco.mj_resetData(self.model, self.data)
        moment = self._moment()
        for term in self.task.spec.reset:
            RESETS[term.term](Arguments(term.arguments), moment, self._random)
        self._begin()
        if self.render_mode == "human":
            self.render()
        values = self._some_values(self._reset_values)
        return self._last_obs.copy(), self._info(self.task.spec.reset_info, self._moment(values=values))

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        action, carried = unpack(action)
        if carried is not None and carried.muscles is not None:
            self.set_muscles(carried.muscles)
        action = np.asarray(action if self.task.actions is None else self.task.actions[int(action)], np.float32)
        before = self._some_values(self._before_values)
        is_sound = self._run_physics(action)
        self._n_steps += 1
        reward, is_terminated, info = 0.0, True, {}
        if is_sound:
            moment = self._moment(action=action, before=before, values=[])
            for term in self.task.spec.values:
                moment.values.append(_value(term, moment))  # type: ignore[attr-defined]
            obs, reward = self._observe(), moment.values[self.task.spec.reward]
            is_sound = bool(np.isfinite(obs).all() and np.isfinite(reward))
        if is_sound:
            self._last_obs = obs
            healthy = self.task.spec.healthy
            is_terminated = healthy >= 0 and moment.values[healthy] == 0.0
            info = self._info(self.task.spec.info, moment)
        else:  # the simulation broke down: the episode ends with the last finite observation
            reward = 0.0
            row = np.full(max((_stop(at) for at in self.task.info_columns.values()), default=0), np.nan)
            info = self.task.info(row) | {"unstable": True}
        if self.control is not None and self.control.sample.size:
            # Nobody is to learn from a breakdown.
            info[MUSCLE_SAMPLE] = self.control.sample.copy() if is_sound else np.full_like(self.control.sample, np.nan)
        limit = self.task.max_episode_steps
        if self.render_mode == "human":
            self.render()
        is_truncated = is_sound and limit is not None and self._n_steps >= limit
        return self._last_obs.copy(), reward, is_terminated, is_truncated, info

    def _begin(self) -> None:
        """An episode begins with the data as they are."""
        mujoco.mj_forward(self.model, self.data)
        if self.control is not None:
            self.control.reset(self.data)
        self._n_steps = 0
        self._last_obs = self._observe()

    def _run_physics(self, action: np.ndarray) -> bool:
        """Whether the physics is sound."""
        model, data = self.model, self.data
        if self.control is None:
            data.ctrl[:] = action
        else:
            self.control.begin_step(data, action)
        for substep in range(self.frame_skip):
            if self.control is None:
                mujoco.mj_step(model, data)
            else:
                mujoco.mj_step1(model, data)
                self.control.before_substep(data, substep)
                mujoco.mj_step2(model, data)
            # MuJoCo has reset the data by itself then, and would go on as if nothing had been.
            if any(data.warning[warning].number for warning in _BREAKDOWNS):
                return False
        mujoco.mj_rnePostConstraint(model, data)
        return bool(np.isfinite(data.qpos).all() and np.isfinite(data.qvel).all())

    # --- terms ----------------------------------------------------------------------------------------------------------

    def _moment(self, **parts: Any) -> Moment:
        return Moment(self.model, self.data, self.dt, control=self.control, **parts)

    def _observe(self) -> np.ndarray:
        return np.concatenate([_array(term, self._moment()) for term in self.task.spec.observation])

    def _some_values(self, positions: list[int]) -> dict[int, float]:
        values: dict[int, float] = {}
        for position in positions:
            values[position] = _value(self.task.spec.values[position], self._moment(values=values))
        return values

    def _info(self, infos: Any, moment: Moment) -> dict[str, Any]:
        arrays = self.task.spec.arrays
        return {
            info.key: _array(arrays[info.position], moment) if info.is_array else moment.values[info.position]
            for info in infos
        }

    def _with_what_they_need(self, positions: list[int]) -> list[int]:
        """The given values and those that they are made of, in the order of evaluation."""
        terms, needed = self.task.spec.values, set(positions)
        for position in reversed(range(len(terms))):
            if position in needed:
                types = known_terms()["value"][terms[position].term]
                for name, numbers in terms[position].arguments.items():
                    if types[name] in ("value", "values"):
                        needed |= {int(number) for number in numbers}
        assert not any(terms[position].term in STEP_ONLY for position in needed), "the loader has checked that"
        return sorted(needed)

    # --- states and pictures --------------------------------------------------------------------------------------------

    def set_state(self, qpos: np.ndarray, qvel: np.ndarray) -> None:
        """
        Begin an episode from a state; all else is as the model has it.

        :param qpos: positions ``[nq]``
        :param qvel: velocities ``[nv]``
        """
        mujoco.mj_resetData(self.model, self.data)
        self.data.qpos[:], self.data.qvel[:] = qpos, qvel
        self._begin()

    def set_physics(self, state: np.ndarray) -> None:
        """
        Begin an episode from a whole state: also time, activations, targets, and the task's memory.

        :param state: what ``Engine.physics`` or ``get_physics`` gave
        """
        mujoco.mj_resetData(self.model, self.data)
        mujoco.mj_setState(self.model, self.data, state, _STATE)
        self._begin()

    def get_physics(self) -> np.ndarray:
        """
        :return: MuJoCo's integration state
        """
        state = np.empty(mujoco.mj_stateSize(self.model, _STATE))
        mujoco.mj_getState(self.model, self.data, state, _STATE)
        return state

    def get_checkpoint(self) -> dict[str, Any]:
        """
        :return: all that decides how it goes on, beside MuJoCo's data: random numbers, counters, what the muscles could do
        """
        return {
            "random": None if self._random is None else self._random.state,
            "n_steps": self._n_steps,
            "last_obs": self._last_obs.copy(),
            "control": None if self.control is None else self.control.get_checkpoint(),
        }

    def set_checkpoint(self, state: dict[str, Any]) -> None:
        """
        :param state: what ``get_checkpoint`` gave
        """
        self._random = None if state["random"] is None else RandomStream.from_state(state["random"])
        self._n_steps, self._last_obs = state["n_steps"], state["last_obs"]
        if self.control is not None:
            self.control.set_checkpoint(state["control"])

    def render(self) -> Any:
        """A picture of the environment (or, in human mode, its window)."""
        if self.task.marker is not None and self.render_mode is not None:
            viewer = self.mujoco_renderer._get_viewer(self.render_mode)
            viewer.add_marker(pos=self._marker_position(*self.task.marker), size=np.full(3, 0.03), rgba=_MARKER_RGBA)
        return self.mujoco_renderer.render(self.render_mode)

    def _marker_position(self, site: int, joint: int, angle: int) -> np.ndarray:
        """Where the site is when the joint has the angle; all else is as it is."""
        there = mujoco.MjData(self.model)
        there.qpos[:] = self.data.qpos
        there.qpos[self.model.jnt_qposadr[joint]] = self.data.userdata[angle]
        mujoco.mj_kinematics(self.model, there)
        return there.site_xpos[site]

    def close(self) -> None:
        """Close the windows."""
        self.mujoco_renderer.close()


def _array(term: Term, moment: Moment) -> np.ndarray:
    arguments = Arguments(term.arguments)
    function = ARRAYS.get(term.term)
    return field_rows(term.term, arguments, moment) if function is None else function(arguments, moment)


def _value(term: Term, moment: Moment) -> float:
    return VALUES[term.term](Arguments(term.arguments), moment)


def _stop(columns: int | slice) -> int:
    return columns.stop if isinstance(columns, slice) else columns + 1
