"""The callback that keeps the state between two iterations ready, and writes it."""

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from stable_baselines3.common.callbacks import BaseCallback

from sb3_hrl.checkpoint import archive, snapshot
from sb3_hrl.checkpoint.metadata import describe, describe_envs
from sb3_hrl.checkpoint.signals import SavingSignals


class Checkpointer(BaseCallback):
    """
    Write checkpoints from which training goes on exactly. For HPPO, IMPALA, and SB3's PPO and A2C.

    When a rollout begins, all that training needs is copied into memory; every file is written from that copy, so that it
    describes the boundary between two iterations and bears its step, whenever it is written.

    :param folder: where the checkpoints go, as ``<name_prefix>_<num_timesteps>_steps.zip``
    :param save_freq: steps of all environments together between two checkpoints; 0 for none but those that are asked for
    :param name_prefix: of the files
    :param keep_last: how many of them stay; None for all. Others (``best_model.zip``, those of later steps, which another run
        has left there) are left alone
    :param save_optimizer: False writes files for inference only
    :param verbose: 1 tells of every file
    """

    is_internal = True

    def __init__(
        self,
        folder: str | Path,
        save_freq: int = 0,
        name_prefix: str = "rl_model",
        keep_last: int | None = None,
        save_optimizer: bool = True,
        verbose: int = 0,
    ) -> None:
        super().__init__(verbose)
        if save_freq < 0:
            raise ValueError(f"Checkpointer: save_freq: expected a number >= 0, got {save_freq}")
        if keep_last is not None and keep_last < 1:
            raise ValueError(f"Checkpointer: keep_last: expected a number >= 1, or None for all, got {keep_last}")
        self.folder, self.save_freq, self.name_prefix = Path(folder), save_freq, name_prefix
        self.keep_last, self.save_optimizer = keep_last, save_optimizer
        # The newest state between two iterations; replaced as a whole, so that another thread may take it at any time.
        self.ready: tuple[snapshot.Snapshot, dict[str, Any]] | None = None
        self._environments: dict[str, Any] = {}
        self._root: BaseCallback = self  # of all callbacks
        self._n_saved = -1
        self._is_rollout_complete = False

    def _init_callback(self) -> None:
        archive.remove_torn(self.folder)

    def _on_training_start(self) -> None:
        self._n_saved = self.model.num_timesteps
        later = [path.name for step, path in self._find() if step > self._n_saved]
        if later:
            warnings.warn(
                f"{self.folder} has checkpoints of later steps than {self._n_saved:,}, of another run ({later[-1]}): resuming "
                "from it would take them; give each run a folder of its own, or remove them"
            )
        self._environments = describe_envs(self.training_env)
        self._root = self.locals["callback"]

    def _on_rollout_start(self) -> None:
        self._is_rollout_complete = False
        self._take(has_begun=True)
        self._save_if_due()

    def _save_if_due(self) -> None:
        if self.save_freq and self.model.num_timesteps // self.save_freq > self._n_saved // self.save_freq:
            try:
                self.save()
            except OSError as error:  # a full disk must not cost the training
                warnings.warn(f"no checkpoint was written, and the one before is as it was: {error}")
            self._n_saved = self.model.num_timesteps

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        self._is_rollout_complete = True

    def _on_training_end(self) -> None:
        if self._is_rollout_complete:
            self._take(has_begun=False)
            self._save_if_due()

    @contextmanager
    def handling_signals(self) -> Iterator[None]:
        """While it lasts, SIGTERM and SIGUSR1 write a checkpoint and end the process: see ``SavingSignals``."""
        signals = SavingSignals(self.save)
        signals.install()
        try:
            yield
        finally:
            signals.remove()

    def _take(self, has_begun: bool) -> None:
        taken = snapshot.take(self.model, self._root, is_resumable=self.save_optimizer, has_begun=has_begun)
        self.ready = taken, describe(self.model, taken, self._environments)

    def save(self, path: Path | None = None) -> Path | None:
        """
        Write the newest state between two iterations. May be called from another thread.

        :param path: where to; by default into the folder, under a name with its step
        :return: the file; None if training has not come to its first iteration
        """
        if self.ready is None:
            return None
        taken, metadata = self.ready
        if path is None:
            path = self.folder / f"{self.name_prefix}_{taken.num_timesteps}_steps.zip"
        taken.write(path, metadata)
        if self.verbose >= 1:
            print(f"Checkpoint of step {taken.num_timesteps}: {path}", flush=True)
        if self.keep_last is not None:
            earlier = [found for step, found in self._find() if step <= taken.num_timesteps]
            for old in earlier[: -self.keep_last]:
                old.unlink(missing_ok=True)
                snapshot.metadata_path(old).unlink(missing_ok=True)
        return path

    def _find(self) -> list[tuple[int, Path]]:
        """The checkpoints in the folder and their steps, in their order."""
        pattern = re.compile(rf"{re.escape(self.name_prefix)}_(\d+)_steps\.zip")
        paths = self.folder.iterdir() if self.folder.is_dir() else ()
        return sorted((int(match.group(1)), path) for path in paths if (match := pattern.fullmatch(path.name)))
