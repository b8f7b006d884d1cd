#pragma once

#include <mujoco/mujoco.h>

#include <vector>

namespace sb3_hrl {

// Which geoms of a model can touch at all, written into the model once, so that MuJoCo need not search for them in every step.
//
// MuJoCo looks for bodies that are near each other (sweep and prune along the principal axis of all geoms), and then asks for
// each pair of geoms whether contype, conaffinity and kinship let them touch. Where nothing can touch but the world's planes,
// which is usual for one body on a floor, that search finds nothing. The constructor makes the pairs with planes explicit
// (MJCF's contact/pair) with the parameters that MuJoCo would mix for them, and takes the geoms out of the search; contacts,
// and so every number of a simulation, stay the same to the last bit. The same holds for looking for independent groups of
// constraints (islands) in a model of one kinematic tree, which is switched off.
//
// A model that this cannot be said of stays as it is. Above all one whose bodies can touch each other: MuJoCo's search drops
// some pairs that touch by less than its rounding, and the list would not.
class CollisionList {
 public:
  // Changes the model, which from then on reads this list's memory: both must live while it is used, and it must not be copied.
  explicit CollisionList(mjModel* model);
  CollisionList(const CollisionList&) = delete;
  CollisionList& operator=(const CollisionList&) = delete;

 private:
  void add(const mjModel* model, int plane, int geom);
  void install(mjModel* model);

  std::vector<int> dim_, geom1_, geom2_, signature_;
  std::vector<mjtNum> solref_, solreffriction_, solimp_, margin_, gap_, adhesion_, friction_;
};

}  // namespace sb3_hrl
