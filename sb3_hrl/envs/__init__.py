"""Environments: tasks as data, and the native engine that runs them."""

from sb3_hrl.envs.engine import Engine, StepResult
from sb3_hrl.envs.task import NoNativeForm, Task, TaskError, load_task, native_tasks

__all__ = ["Engine", "NoNativeForm", "StepResult", "Task", "TaskError", "load_task", "native_tasks"]
