"""Trains a muscle network by regression while the policy trains."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch as th
from torch import nn

from sb3_hrl.muscle.buffer import MuscleBuffer
from sb3_hrl.muscle.interface import MuscleState
from sb3_hrl.muscle.loss import make_pattern, muscle_loss, produced_torque
from sb3_hrl.muscle.network import MuscleNetwork
from sb3_hrl.muscle.qp import QpLowLevel

# An activation above this counts as saturated.
_SATURATED = 0.99
# Opposing torques below this, Nm, are no co-contraction.
_NEGLIGIBLE = 1e-6
# Effort of the programme that bounds the torque error: enough to make it unique, too little to move it.
_BOUND_EFFORT = 1e-6


class MuscleMetrics(NamedTuple):
    """
    How well a network does on tuples that it has not learned from yet; means over tuples, and muscles or coordinates.

    :param loss: mean of the minibatches that it learned from since
    :param torque_rmse: root mean square of produced minus desired torque, Nm
    :param excess_over_qp: the part of it that the best activations in [0, 1] would spare, Nm:
        ``sqrt(mean square error - mean square error of the quadratic programme)``. The rest is out of the muscles' reach
    :param infeasible_fraction: share of tuples that desire more than the muscles can do at some coordinate taken alone
    :param effort: mean squared activation
    :param saturation: share of activations above 0.99
    :param co_contraction: mean of ``2 min(up, down) / (up + down)``, where ``up`` and ``down`` are the torques of the muscles
        that pull in either direction: 0 for one side only, 1 for balance
    """

    loss: float
    torque_rmse: float
    excess_over_qp: float
    infeasible_fraction: float
    effort: float
    saturation: float
    co_contraction: float


class MuscleLearner:
    """
    :param network: what learns; in a cascade its newest level
    :param pattern: ``[P]``, where each packed number stands in the flat ``[D, M]``
    :param learning_rate: of Adam; a number, or a function of the remaining progress, as SB3's schedules are
    :param n_epochs: how often each tuple is used in an update
    :param batch_size: of a minibatch; the last one of an epoch may be smaller
    :param max_grad_norm: gradients with a larger norm are scaled down to it; None for no limit
    :param max_grad_value: every number of the gradient is clamped to plus and minus this; None for no limit
    :param effort_weight: of the squared activations in the loss
    :param pre_activation_weight: of the squared pre-activations in the loss
    :param loss_scale: what the torques are divided by in the loss, ``[D]`` or one number, Nm; by default a quarter of
        the network's ``torque_scale``
    :param reservoir_size: how many tuples of all that came before are kept, each with the same probability. An update learns
        from as many of them as there are new ones, so that what the policy no longer does is not forgotten; 0 for none
    :param n_qp_samples: how many tuples of an update ``excess_over_qp`` is measured on
    :param seed: of the order of the tuples; torch's global random numbers are not touched
    :param device: where the network learns
    """

    def __init__(
        self,
        network: MuscleNetwork,
        pattern: np.ndarray,
        learning_rate: float | Callable[[float], float] = 3e-4,
        n_epochs: int = 4,
        batch_size: int = 256,
        max_grad_norm: float | None = 0.5,
        max_grad_value: float | None = None,
        effort_weight: float = 0.05,
        pre_activation_weight: float = 0.01,
        loss_scale: float | np.ndarray | None = None,
        reservoir_size: int = 10_000,
        n_qp_samples: int = 64,
        seed: int = 0,
        device: th.device | str = "cpu",
    ) -> None:
        if len(pattern) != network.n_packed:
            raise ValueError(f"pattern: expected {network.n_packed} numbers, as the network has, got {len(pattern)}")
        for name, value, low in (
            ("n_epochs", n_epochs, 1),
            ("batch_size", batch_size, 1),
            ("n_qp_samples", n_qp_samples, 1),
            ("reservoir_size", reservoir_size, 0),
        ):
            if value < low:
                raise ValueError(f"{name}: expected at least {low}, got {value}")
        self.network = network.to(device)
        self.device = th.device(device)
        self.learning_rate = learning_rate
        self.n_epochs, self.batch_size, self.n_qp_samples = n_epochs, batch_size, n_qp_samples
        self.max_grad_norm, self.max_grad_value = max_grad_norm, max_grad_value
        self.effort_weight, self.pre_activation_weight = effort_weight, pre_activation_weight
        scale = 0.25 * network.torque_scale.cpu().numpy() if loss_scale is None else loss_scale
        full = np.broadcast_to(np.asarray(scale, np.float32), network.n_coords).copy()
        self.loss_scale = th.from_numpy(full).to(device)
        self.pattern = make_pattern(pattern, network.n_coords, network.n_muscles, device)
        self.parameters = [parameter for parameter in network.parameters() if parameter.requires_grad]
        # Fused it takes a third of the time, and continues as exactly.
        is_fused = self.device.type in ("cpu", "cuda")
        self.optimizer = th.optim.Adam(self.parameters, lr=self._rate(1.0), fused=is_fused)
        self.generator = th.Generator().manual_seed(seed)
        self.reservoir = np.zeros((reservoir_size, network.n_packed + network.n_coords + 1), np.float32)
        self.n_seen = 0
        self._flat_pattern = np.asarray(pattern, np.int64)

    def _rate(self, progress_remaining: float) -> float:
        return float(self.learning_rate(progress_remaining) if callable(self.learning_rate) else self.learning_rate)

    # --- learning -------------------------------------------------------------------------------------------------------

    def update(self, buffer: MuscleBuffer, progress_remaining: float = 1.0) -> MuscleMetrics:
        """
        Learn from a rollout.

        :param buffer: its tuples
        :param progress_remaining: from 1 at the beginning of the training to 0 at its end
        :return: how the network did on them before it learned from them
        """
        rows = buffer.tuples()
        metrics = self.evaluate(rows)
        loss = self.fit(np.concatenate((rows, self._recall(len(rows)))), self.n_epochs, self._rate(progress_remaining))
        self.remember(rows)
        return metrics._replace(loss=loss)

    def fit(self, tuples: np.ndarray, n_epochs: int, learning_rate: float) -> float:
        """
        :param tuples: ``[N, P + D]``, or ``[N, P + D + 1]`` with the weight of the newest level; N > 0
        :param n_epochs: how often each is used
        :param learning_rate: of Adam
        :return: the mean loss of all minibatches
        """
        rows = self._rows(tuples)
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        losses = []
        for _ in range(n_epochs):
            order = th.randperm(len(rows), generator=self.generator).to(self.device)
            for batch in order.split(self.batch_size):
                packed, torque, weight = self._split(rows[batch])
                u = self.network(packed, torque, weight)
                loss = muscle_loss(
                    self.pattern, packed, torque, u, self.loss_scale, self.effort_weight, self.pre_activation_weight
                ).total
                if not th.isfinite(loss):
                    continue  # torques beyond all bounds, of a simulation about to break down
                self.optimizer.zero_grad()
                loss.backward()
                if self.max_grad_value is not None:
                    nn.utils.clip_grad_value_(self.parameters, self.max_grad_value)
                if self.max_grad_norm is not None:
                    nn.utils.clip_grad_norm_(self.parameters, self.max_grad_norm)
                self.optimizer.step()
                losses.append(loss.detach())
        return float(th.stack(losses).mean()) if losses else float("nan")

    def remember(self, tuples: np.ndarray) -> None:
        """
        Put tuples into the reservoir (Vitter 1985, algorithm R).

        :param tuples: ``[N, P + D]`` or ``[N, P + D + 1]``
        """
        size, rows = len(self.reservoir), self._rows(tuples).cpu().numpy()
        if not size:
            return
        counts = np.arange(self.n_seen + 1, self.n_seen + len(rows) + 1)
        drawn = (th.rand(len(rows), generator=self.generator, dtype=th.float64).numpy() * counts).astype(np.int64)
        places = np.where(counts <= size, counts - 1, drawn)
        self.reservoir[places[places < size]] = rows[places < size]  # in order: the last one to a place stays
        self.n_seen += len(rows)

    def _recall(self, n: int) -> np.ndarray:
        """At most ``n`` tuples of the reservoir."""
        n_filled = min(self.n_seen, len(self.reservoir))
        if not n_filled:
            return self.reservoir[:0]
        return self.reservoir[th.randperm(n_filled, generator=self.generator)[:n].numpy()]

    def _rows(self, tuples: np.ndarray) -> th.Tensor:
        if not len(tuples):
            raise ValueError("the muscle learner got no tuples: expected at least one with finite numbers")
        n = self.network.n_packed + self.network.n_coords
        if tuples.shape[1] == n:
            tuples = np.concatenate((tuples, np.ones((len(tuples), 1))), axis=1)
        if tuples.shape[1] != n + 1:
            raise ValueError(f"tuples: expected {n} numbers each, or {n + 1} with a weight, got {tuples.shape[1]}")
        return th.as_tensor(tuples, dtype=th.float32, device=self.device)

    def _split(self, rows: th.Tensor) -> tuple[th.Tensor, th.Tensor, th.Tensor]:
        n_packed, n = self.network.n_packed, self.network.n_packed + self.network.n_coords
        return rows[:, :n_packed], rows[:, n_packed:n], rows[:, n]

    # --- telemetry ------------------------------------------------------------------------------------------------------

    @th.no_grad()
    def evaluate(self, tuples: np.ndarray) -> MuscleMetrics:
        """
        :param tuples: ``[N, P + D]`` or ``[N, P + D + 1]``
        :return: how the network does on them; ``loss`` is that of these tuples
        """
        packed, torque, weight = self._split(self._rows(tuples))
        u = self.network(packed, torque, weight)
        loss = muscle_loss(self.pattern, packed, torque, u, self.loss_scale, self.effort_weight, self.pre_activation_weight)
        activation = th.relu(th.tanh(u))
        error = produced_torque(self.pattern, packed, activation) - torque
        each = packed * (activation @ self.pattern.spread)
        up, down = each.clamp(min=0) @ self.pattern.collect, (-each).clamp(min=0) @ self.pattern.collect
        opposing = th.where(up + down > _NEGLIGIBLE, 2 * th.minimum(up, down) / (up + down), 0.0)
        low, high = packed.clamp(max=0) @ self.pattern.collect, packed.clamp(min=0) @ self.pattern.collect
        is_infeasible = ((torque < low) | (torque > high)).any(dim=1)
        # Evenly over the rollout, and without a random number.
        some = th.linspace(0, len(packed) - 1, min(self.n_qp_samples, len(packed))).long()
        spared = float((error[some] ** 2).mean()) - self._least_square_error(packed[some], torque[some])
        return MuscleMetrics(
            float(loss.total),
            math.sqrt(float((error**2).mean())),
            math.sqrt(max(spared, 0.0)),
            float(is_infeasible.float().mean()),
            float(loss.effort),
            float((activation > _SATURATED).float().mean()),
            float(opposing.mean()),
        )

    def _least_square_error(self, packed: th.Tensor, torque: th.Tensor) -> float:
        """The mean square error of the best activations, Nm^2."""
        n_coords, n_muscles = self.network.n_coords, self.network.n_muscles
        qp = QpLowLevel(float(self.loss_scale.mean()), _BOUND_EFFORT)
        full = np.zeros((len(packed), n_coords * n_muscles))
        full[:, self._flat_pattern] = packed.cpu().numpy()
        unused = np.zeros(0)
        squares = 0.0
        for torques, desired in zip(
            full.reshape(-1, n_coords, n_muscles), torque.cpu().numpy().astype(np.float64), strict=True
        ):
            activation = qp.activate(MuscleState(torques, unused, unused, unused, unused), desired, 1.0)
            squares += float(((torques @ activation - desired) ** 2).mean())
        return squares / len(full)

    # --- saving ---------------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """
        :return: all that an exact continuation needs beside the constructor's arguments
        """
        return {
            "network": self.network.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "generator": self.generator.get_state(),
            "reservoir": th.from_numpy(self.reservoir.copy()),
            "n_seen": self.n_seen,
            "loss_scale": self.loss_scale.cpu(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """
        :param state: of a learner of the same sizes
        """
        reservoir = state["reservoir"].cpu().numpy()
        n_kept = min(len(reservoir), len(self.reservoir))
        self.network.load_state_dict(state["network"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.generator.set_state(state["generator"].cpu())
        self.loss_scale = state["loss_scale"].to(self.device)
        # One of another size goes on with what fits, and fills up.
        self.reservoir[:n_kept] = reservoir[:n_kept]
        is_same_size = len(reservoir) == len(self.reservoir)
        self.n_seen = int(state["n_seen"]) if is_same_size else min(int(state["n_seen"]), n_kept)
