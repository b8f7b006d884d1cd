"""
A film strip of a trained model: ``python -m benchmarks.muscles.film MODEL.zip --env ID --output strip.png``.

``MUJOCO_GL=egl`` renders without a screen. VecNormalize's statistics are looked for beside the model.
"""

import argparse
from pathlib import Path
from typing import Any

import gymnasium as gym
import imageio.v3 as imageio
import numpy as np
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecNormalize

import sb3_hrl.envs  # noqa: F401, registers the bodies
from sb3_hrl.hppo import HPPO


def film(model_file: str, env_id: str, seed: int, steps: list[int], size: tuple[int, int]) -> np.ndarray:
    """
    :param model_file: a model of HPPO
    :param env_id: its environment
    :param seed: of the episode
    :param steps: when pictures are taken, in rising order
    :param size: width and height of a picture
    :return: the pictures side by side [height, n * width, 3]
    """
    env: VecEnv = DummyVecEnv([lambda: gym.make(env_id, render_mode="rgb_array", width=size[0], height=size[1])])
    statistics = Path(f"{model_file.removesuffix('.zip')}_vecnormalize.pkl")
    if statistics.is_file():
        env = VecNormalize.load(str(statistics), env)
        env.training = False
    env.seed(seed)
    model, obs, pictures = HPPO.load(model_file, device="cpu"), env.reset(), list[Any]()
    for step in range(steps[-1] + 1):
        if step in steps:
            pictures.append(env.render())
        actions, _ = model.predict(obs, deterministic=True)  # type: ignore[arg-type]
        obs, _, dones, _ = env.step(actions)
        if dones[0]:
            break
    env.close()
    return np.concatenate(pictures, axis=1)


def main() -> None:
    """Film one episode."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--env", default="MuscleArmReach-v0")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, nargs="+", default=[0, 3, 6, 9, 14, 140])
    parser.add_argument("--size", type=int, nargs=2, default=[240, 240])
    parser.add_argument("--output", default="strip.png")
    args = parser.parse_args()
    imageio.imwrite(args.output, film(args.model, args.env, args.seed, args.steps, tuple(args.size)))


if __name__ == "__main__":
    main()
