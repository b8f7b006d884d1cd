"""
What it is worth to find once which geoms can touch: ``python -m benchmarks.collisions`` (half a minute on a quiet machine).

The engine does so when it loads a model whose bodies touch nothing but planes (``native/src/collision_list.cpp``). This
measures it outside the engine, in MuJoCo alone: the same body of gymnasium as it comes, and with explicit pairs and, where it
is one kinematic tree, without islands. Both models' states are compared: they must be equal to the last bit. (MuJoCo's clock,
which the engine switches off, is in both times.)
"""

import json
import statistics
import time
from pathlib import Path
from typing import Any

import gymnasium
import mujoco
import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from sb3_hrl.experiments.machine import describe_machine

RESULTS = Path(__file__).parent / "results" / "collisions.json"
ASSETS = Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets"
# Bodies that touch each other have islands to lose only.
BODIES = ("ant", "half_cheetah", "hopper", "humanoid", "inverted_pendulum", "swimmer", "walker2d_v5")
N_ROUNDS, N_SUBSTEPS = 15, 2000


def can_touch(model: Any, geom1: int, geom2: int) -> bool:
    """
    :param model: the model
    :param geom1: a geom
    :param geom2: another
    :return: whether MuJoCo's filters let them touch
    """
    contype, conaffinity = model.geom_contype, model.geom_conaffinity
    welds = [int(model.body_weldid[model.geom_bodyid[geom]]) for geom in (geom1, geom2)]
    parents = [int(model.body_weldid[model.body_parentid[weld]]) for weld in welds]
    is_kin = 0 not in welds and (welds[0] == parents[1] or welds[1] == parents[0])
    is_wanted = contype[geom1] & conaffinity[geom2] or contype[geom2] & conaffinity[geom1]
    return bool(is_wanted) and welds[0] != welds[1] and not is_kin


def with_pairs(spec: mujoco.MjSpec) -> Any:
    """
    :param spec: a model whose geoms have one priority and one solmix; it is changed
    :return: it with explicit pairs of geoms, if they are all pairs with planes, and without islands, if it is one tree
    """
    model, geoms = spec.compile(), list(spec.geoms)
    n_geoms = range(model.ngeom)
    couples = [(i, j) for i in n_geoms for j in n_geoms[i + 1 :] if can_touch(model, i, j)]
    is_on_planes = all(model.geom_type[plane] == mujoco.mjtGeom.mjGEOM_PLANE for plane, _ in couples)
    if is_on_planes:
        for index, geom in enumerate(geoms):
            geom.name = f"geom {index}"
        for plane, geom in sorted(couples, key=lambda couple: (model.geom_bodyid[couple[1]], couple)):
            both = [plane, geom]
            spec.add_pair(
                geomname1=geoms[plane].name,
                geomname2=geoms[geom].name,
                condim=int(model.geom_condim[both].max()),
                friction=model.geom_friction[both].max(axis=0)[[0, 0, 1, 2, 2]],
                solref=model.geom_solref[both].mean(axis=0),
                solimp=model.geom_solimp[both].mean(axis=0),
                margin=model.geom_margin[both].sum(),
                gap=model.geom_gap[both].sum(),
            )
    listed = spec.compile()
    if is_on_planes:
        listed.geom_contype[:], listed.geom_conaffinity[:] = 0, 0
        listed.body_contype[:], listed.body_conaffinity[:] = 0, 0
    if listed.ntree <= 1:
        listed.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_ISLAND
    return listed


def measure(plain: Any, listed: Any) -> dict[str, Any]:
    """
    :param plain: a model
    :param listed: the same with explicit pairs, or only without islands
    :return: microseconds of a step of either, and their ratio
    """
    seconds: dict[str, list[float]] = {"plain": [], "listed": []}
    for n_round in range(N_ROUNDS):
        states = []
        for name, model in (("plain", plain), ("listed", listed)):
            data = mujoco.MjData(model)
            data.ctrl[:] = np.random.default_rng(n_round).uniform(-0.4, 0.4, model.nu)
            begin = time.perf_counter()
            mujoco.mj_step(model, data, N_SUBSTEPS)
            seconds[name].append(time.perf_counter() - begin)
            states.append(np.concatenate([data.qpos, data.qvel]))
        assert np.array_equal(*states), "the explicit pairs have changed the simulation"
    before, after = (1e6 * statistics.median(seconds[name]) / N_SUBSTEPS for name in ("plain", "listed"))
    return {"n_pairs": int(listed.npair), "plain_us": before, "listed_us": after, "ratio": before / after}


def main() -> None:
    """Measure all, print a table, write the figures down."""
    specs = {name: (lambda name=name: mujoco.MjSpec.from_file(str(ASSETS / f"{name}.xml"))) for name in BODIES}
    rows = {name: measure(make().compile(), with_pairs(make())) for name, make in track(specs.items())}
    table = Table("model", "pairs", "a step as it comes (us)", "with the list (us)", "ratio")
    for name, row in rows.items():
        table.add_row(name, str(row["n_pairs"]), f"{row['plain_us']:.2f}", f"{row['listed_us']:.2f}", f"{row['ratio']:.2f}")
    Console(width=100).print(table)
    RESULTS.write_text(json.dumps({"rows": rows, "machine": describe_machine()}, indent=1) + "\n")


if __name__ == "__main__":
    main()
