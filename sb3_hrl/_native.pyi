import collections.abc
import typing

import numpy
import numpy.typing

pybind11_version: str

class ArgumentInfo:
    def __init__(self, *args, **kwargs) -> None: ...
    @property
    def is_required(self) -> bool: ...
    @property
    def name(self) -> str: ...
    @property
    def type(self) -> str: ...

class BuildInfo:
    def __init__(self, *args, **kwargs) -> None: ...
    @property
    def build_type(self) -> str: ...
    @property
    def compiler(self) -> str: ...
    @property
    def cxx_standard(self) -> int: ...
    @property
    def mujoco_header(self) -> str: ...
    @property
    def mujoco_library(self) -> str: ...
    @property
    def torch_header(self) -> str: ...
    @property
    def torch_library(self) -> str: ...

class Engine:
    def __init__(
        self,
        spec: TaskSpec,
        n_envs: typing.SupportsInt | typing.SupportsIndex,
        n_threads: typing.SupportsInt | typing.SupportsIndex,
        seed: typing.SupportsInt | typing.SupportsIndex,
    ) -> None: ...
    def get_physics(
        self, index: typing.SupportsInt | typing.SupportsIndex, state: numpy.typing.NDArray[numpy.float64]
    ) -> None: ...
    def get_qpos_qvel(
        self,
        index: typing.SupportsInt | typing.SupportsIndex,
        qpos: numpy.typing.NDArray[numpy.float64],
        qvel: numpy.typing.NDArray[numpy.float64],
    ) -> None: ...
    def get_state(self, index: typing.SupportsInt | typing.SupportsIndex) -> bytes: ...
    def instability(self, index: typing.SupportsInt | typing.SupportsIndex) -> Instability: ...
    def muscle_summary(
        self, index: typing.SupportsInt | typing.SupportsIndex, summary: numpy.typing.NDArray[numpy.float64]
    ) -> None: ...
    def observe(self, index: typing.SupportsInt | typing.SupportsIndex, obs: numpy.typing.NDArray[numpy.float64]) -> None: ...
    def reset(
        self,
        indices: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex],
        seeds: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex | None],
        obs: numpy.typing.NDArray[numpy.float64],
        reset_infos: numpy.typing.NDArray[numpy.float64],
    ) -> None: ...
    def set_low_level(self, low_level: LowLevel) -> None: ...
    def set_qpos_qvel(
        self,
        index: typing.SupportsInt | typing.SupportsIndex,
        qpos: numpy.typing.NDArray[numpy.float64],
        qvel: numpy.typing.NDArray[numpy.float64],
        obs: numpy.typing.NDArray[numpy.float64],
    ) -> None: ...
    def set_state(self, index: typing.SupportsInt | typing.SupportsIndex, state: bytes) -> None: ...
    def step(
        self,
        actions: numpy.typing.NDArray[numpy.float32],
        n_hold: numpy.typing.NDArray[numpy.int32] | None,
        gamma: typing.SupportsFloat | typing.SupportsIndex,
        obs: numpy.typing.NDArray[numpy.float64],
        rewards: numpy.typing.NDArray[numpy.float64],
        terminated: numpy.typing.NDArray[numpy.uint8],
        truncated: numpy.typing.NDArray[numpy.uint8],
        infos: numpy.typing.NDArray[numpy.float64],
        terminal_obs: numpy.typing.NDArray[numpy.float64],
        n_held: numpy.typing.NDArray[numpy.int32],
        episode_returns: numpy.typing.NDArray[numpy.float64],
        episode_lengths: numpy.typing.NDArray[numpy.int64],
        reset_infos: numpy.typing.NDArray[numpy.float64],
        unstable: numpy.typing.NDArray[numpy.uint8],
        samples: numpy.typing.NDArray[numpy.float32],
    ) -> None: ...
    @property
    def n_envs(self) -> int: ...
    @property
    def n_physics(self) -> int: ...
    @property
    def n_qpos(self) -> int: ...
    @property
    def n_qvel(self) -> int: ...
    @property
    def n_sample(self) -> int: ...
    @property
    def n_threads(self) -> int: ...

class ImageNetwork:
    def __init__(
        self,
        convolutions: collections.abc.Sequence[
            tuple[
                typing.Annotated[numpy.typing.ArrayLike, numpy.float32],
                typing.Annotated[numpy.typing.ArrayLike, numpy.float32],
                typing.SupportsInt | typing.SupportsIndex,
                typing.SupportsInt | typing.SupportsIndex,
            ]
        ],
        connection: tuple[
            typing.Annotated[numpy.typing.ArrayLike, numpy.float32], typing.Annotated[numpy.typing.ArrayLike, numpy.float32]
        ],
        image: tuple[
            typing.SupportsInt | typing.SupportsIndex,
            typing.SupportsInt | typing.SupportsIndex,
            typing.SupportsInt | typing.SupportsIndex,
        ],
        white: typing.SupportsFloat | typing.SupportsIndex,
        halves: bool,
        n_threads: typing.SupportsInt | typing.SupportsIndex,
    ) -> None: ...
    def features(self, pixels: numpy.typing.NDArray[numpy.uint8]) -> numpy.typing.NDArray[numpy.float32]: ...

class InfoSpec:
    def __init__(self, is_array: bool, index: typing.SupportsInt | typing.SupportsIndex) -> None: ...

class Instability:
    def __init__(self, *args, **kwargs) -> None: ...
    @property
    def n_episode_steps(self) -> int: ...
    @property
    def n_events(self) -> int: ...
    @property
    def n_total_steps(self) -> int: ...
    @property
    def seed(self) -> int: ...

class LowLevel:
    def __init__(self, *args, **kwargs) -> None: ...

class MlpPolicy:
    def __init__(
        self,
        actor: collections.abc.Sequence[
            tuple[
                typing.Annotated[numpy.typing.ArrayLike, numpy.float32],
                typing.Annotated[numpy.typing.ArrayLike, numpy.float32],
                str,
                typing.SupportsFloat | typing.SupportsIndex,
            ]
        ],
        critic: collections.abc.Sequence[
            tuple[
                typing.Annotated[numpy.typing.ArrayLike, numpy.float32],
                typing.Annotated[numpy.typing.ArrayLike, numpy.float32],
                str,
                typing.SupportsFloat | typing.SupportsIndex,
            ]
        ],
        distribution: str,
        scales: typing.Annotated[numpy.typing.ArrayLike, numpy.float32],
    ) -> None: ...
    def forward(
        self, obs: numpy.typing.NDArray[numpy.float32], noise: numpy.typing.NDArray[numpy.float32]
    ) -> tuple[
        numpy.typing.NDArray[numpy.float32],
        numpy.typing.NDArray[numpy.float32],
        numpy.typing.NDArray[numpy.float32],
    ]: ...
    def set_scales(self, scales: typing.Annotated[numpy.typing.ArrayLike, numpy.float32]) -> None: ...
    @property
    def n_actions(self) -> int: ...
    @property
    def n_noise(self) -> int: ...

class MuscleNetwork:
    def __init__(
        self,
        levels: collections.abc.Sequence[
            collections.abc.Sequence[
                tuple[
                    typing.Annotated[numpy.typing.ArrayLike, numpy.float32],
                    typing.Annotated[numpy.typing.ArrayLike, numpy.float32],
                ]
            ]
        ],
        packed_scale: collections.abc.Sequence[typing.SupportsFloat | typing.SupportsIndex],
        torque_scale: collections.abc.Sequence[typing.SupportsFloat | typing.SupportsIndex],
        vector_bits: typing.SupportsInt | typing.SupportsIndex = ...,
    ) -> None: ...
    def activate(
        self,
        packed: numpy.typing.NDArray[numpy.float64],
        desired_torque: numpy.typing.NDArray[numpy.float64],
        weight: numpy.typing.NDArray[numpy.float64],
        activation: numpy.typing.NDArray[numpy.float64],
    ) -> None: ...
    @property
    def n_coords(self) -> int: ...
    @property
    def n_muscles(self) -> int: ...
    @property
    def n_packed(self) -> int: ...

class MuscleSettings:
    def __init__(
        self,
        actuation: typing.SupportsInt | typing.SupportsIndex,
        activation: typing.SupportsInt | typing.SupportsIndex,
        dofs: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex],
        pattern: collections.abc.Sequence[typing.SupportsInt | typing.SupportsIndex],
        low: collections.abc.Sequence[typing.SupportsFloat | typing.SupportsIndex],
        high: collections.abc.Sequence[typing.SupportsFloat | typing.SupportsIndex],
        nominal: collections.abc.Sequence[typing.SupportsFloat | typing.SupportsIndex],
        scale: collections.abc.Sequence[typing.SupportsFloat | typing.SupportsIndex],
        stiffness: collections.abc.Sequence[typing.SupportsFloat | typing.SupportsIndex],
        damping: collections.abc.Sequence[typing.SupportsFloat | typing.SupportsIndex],
        torque_limit: collections.abc.Sequence[typing.SupportsFloat | typing.SupportsIndex],
        has_cascade: bool,
    ) -> None: ...

class NetworkLowLevel(LowLevel):
    def __init__(self, network: MuscleNetwork) -> None: ...

class QpLowLevel(LowLevel):
    def __init__(
        self, torque_scale: typing.SupportsFloat | typing.SupportsIndex, effort: typing.SupportsFloat | typing.SupportsIndex
    ) -> None: ...

class Task:
    def __init__(self, spec: TaskSpec) -> None: ...
    @property
    def array_sizes(self) -> list[int]: ...
    @property
    def derived_fields(self) -> list[str]: ...
    @property
    def n_actions(self) -> int: ...
    @property
    def n_info(self) -> int: ...
    @property
    def n_obs(self) -> int: ...
    @property
    def n_reset_info(self) -> int: ...
    @property
    def n_sample(self) -> int: ...
    @property
    def needs_post_step(self) -> bool: ...

class TaskSpec:
    def __init__(
        self,
        model: bytes,
        frame_skip: typing.SupportsInt | typing.SupportsIndex,
        max_episode_steps: typing.SupportsInt | typing.SupportsIndex,
        observation: collections.abc.Sequence[TermSpec],
        values: collections.abc.Sequence[TermSpec],
        arrays: collections.abc.Sequence[TermSpec],
        reset: collections.abc.Sequence[TermSpec],
        reward: typing.SupportsInt | typing.SupportsIndex,
        healthy: typing.SupportsInt | typing.SupportsIndex,
        info: collections.abc.Sequence[InfoSpec],
        reset_info: collections.abc.Sequence[InfoSpec],
        norm_order: typing.SupportsInt | typing.SupportsIndex,
        muscles: MuscleSettings | None,
    ) -> None: ...

class TermInfo:
    def __init__(self, *args, **kwargs) -> None: ...
    @property
    def arguments(self) -> list[ArgumentInfo]: ...
    @property
    def kind(self) -> str: ...
    @property
    def name(self) -> str: ...

class TermSpec:
    def __init__(
        self,
        term: str,
        arguments: collections.abc.Mapping[str, collections.abc.Sequence[typing.SupportsFloat | typing.SupportsIndex]],
    ) -> None: ...

class ThreadPool:
    def __init__(self, n_threads: typing.SupportsInt | typing.SupportsIndex) -> None: ...
    def run(self, n_tasks: typing.SupportsInt | typing.SupportsIndex, task: collections.abc.Callable[[int], None]) -> None: ...
    @property
    def n_threads(self) -> int: ...

class TorqueLowLevel(LowLevel):
    def __init__(self) -> None: ...

def action_noise(
    seed: typing.SupportsInt | typing.SupportsIndex,
    first_decision: typing.SupportsInt | typing.SupportsIndex,
    n_steps: typing.SupportsInt | typing.SupportsIndex,
    n_envs: typing.SupportsInt | typing.SupportsIndex,
    n_noise: typing.SupportsInt | typing.SupportsIndex,
    is_uniform: bool = ...,
) -> numpy.typing.NDArray[numpy.float32]: ...
def available_cpus() -> int: ...
def build_info() -> BuildInfo: ...
def collect_rollout(
    engine: Engine,
    policy: MlpPolicy,
    n_steps: typing.SupportsInt | typing.SupportsIndex,
    shard_size: typing.SupportsInt | typing.SupportsIndex,
    controls: numpy.typing.NDArray[numpy.float32],
    is_choice: bool,
    n_hold: numpy.typing.NDArray[numpy.int32] | None,
    gamma: typing.SupportsFloat | typing.SupportsIndex,
    normalization: tuple[
        typing.Annotated[numpy.typing.ArrayLike, numpy.float64],
        typing.Annotated[numpy.typing.ArrayLike, numpy.float64],
        typing.SupportsFloat | typing.SupportsIndex,
    ]
    | None,
    noise: numpy.typing.NDArray[numpy.float32] | None,
    noise_seed: typing.SupportsInt | typing.SupportsIndex,
    first_decision: typing.SupportsInt | typing.SupportsIndex,
    noise_sample_freq: typing.SupportsInt | typing.SupportsIndex,
    n_unstable_in_a_row: numpy.typing.NDArray[numpy.int64],
    max_unstable_in_a_row: typing.SupportsInt | typing.SupportsIndex,
    observations: numpy.typing.NDArray[numpy.float64],
    actions: numpy.typing.NDArray[numpy.float32],
    rewards: numpy.typing.NDArray[numpy.float32],
    log_probs: numpy.typing.NDArray[numpy.float32],
    values: numpy.typing.NDArray[numpy.float32],
    n_held: numpy.typing.NDArray[numpy.int64],
    terminated: numpy.typing.NDArray[numpy.uint8],
    truncated: numpy.typing.NDArray[numpy.uint8],
    infos: numpy.typing.NDArray[numpy.float64],
    last_observations: numpy.typing.NDArray[numpy.float64],
    raw_observations: numpy.typing.NDArray[numpy.float64] | None,
    samples: numpy.typing.NDArray[numpy.float32] | None,
) -> tuple[
    numpy.typing.NDArray[numpy.int64],
    numpy.typing.NDArray[numpy.int64],
    numpy.typing.NDArray[numpy.float64],
    numpy.typing.NDArray[numpy.int64],
    numpy.typing.NDArray[numpy.bool_],
    numpy.typing.NDArray[numpy.uint64],
    numpy.typing.NDArray[numpy.uint64],
    numpy.typing.NDArray[numpy.float64],
    numpy.typing.NDArray[numpy.float64],
]: ...
def column_moments(
    engine: Engine,
    numbers: numpy.typing.NDArray[numpy.float64],
    sum_block: typing.SupportsInt | typing.SupportsIndex,
) -> tuple[numpy.typing.NDArray[numpy.float64], numpy.typing.NDArray[numpy.float64]]: ...
def compile_model(path: str, n_memory: typing.SupportsInt | typing.SupportsIndex = ...) -> bytes: ...
def known_terms() -> list[TermInfo]: ...
def return_moments(
    returns: numpy.typing.NDArray[numpy.float64],
    rewards: numpy.typing.NDArray[numpy.float32],
    dones: numpy.typing.NDArray[numpy.uint8],
    gamma: typing.SupportsFloat | typing.SupportsIndex,
    sum_block: typing.SupportsInt | typing.SupportsIndex,
) -> tuple[float, float]: ...
def widest_vector_bits() -> int: ...
