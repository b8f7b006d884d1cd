#include "sb3_hrl/collision_list.hpp"

#include <algorithm>
#include <optional>
#include <tuple>

namespace sb3_hrl {
namespace {

struct Couple {
  int body, plane, geom;  // the body is the geom's; the plane's is the world
};

bool can_touch(const mjModel* model, int geom1, int geom2) {
  if (!(model->geom_contype[geom1] & model->geom_conaffinity[geom2]) &&
      !(model->geom_contype[geom2] & model->geom_conaffinity[geom1])) {
    return false;
  }
  const int weld1 = model->body_weldid[model->geom_bodyid[geom1]], weld2 = model->body_weldid[model->geom_bodyid[geom2]];
  if (weld1 == weld2) return false;
  if (weld1 == 0 || weld2 == 0 || (model->opt.disableflags & mjDSBL_FILTERPARENT)) return true;
  return weld1 != model->body_weldid[model->body_parentid[weld2]] && weld2 != model->body_weldid[model->body_parentid[weld1]];
}

bool is_all_zero(const mjtNum* numbers, mjtSize n) {
  return std::all_of(numbers, numbers + n, [](mjtNum number) { return number == 0; });
}

bool is_plain(const mjModel* model) {
  return model->nflex == 0 && model->nmocap == 0 && model->npair == 0 && !(model->opt.disableflags & mjDSBL_MIDPHASE) &&
         !(model->opt.enableflags & (mjENBL_OVERRIDE | mjENBL_SLEEP | mjENBL_IPC | mjENBL_SPECULATIVE)) &&
         is_all_zero(model->geom_adhesion, model->ngeom) && is_all_zero(model->geom_surfacevel, 6 * model->ngeom);
}

// With equal weights a mean of parameters is rounded once, whatever the order and the instructions; otherwise its last bit is
// open.
bool mixes_exactly(const mjModel* model, int geom1, int geom2) {
  return model->geom_priority[geom1] != model->geom_priority[geom2] ||
         model->geom_solmix[geom1] == model->geom_solmix[geom2];
}

// All couples of geoms that can touch, in the order of MuJoCo's contacts; none if the model has another kind of couple.
std::optional<std::vector<Couple>> find_couples(const mjModel* model) {
  const int* excluded = model->exclude_signature;
  std::vector<Couple> couples;
  for (int first = 0; first < model->ngeom; ++first) {
    for (int second = first + 1; second < model->ngeom; ++second) {
      if (!can_touch(model, first, second)) continue;
      // Geoms are in the order of their bodies, so the world's come first.
      const bool is_on_plane = model->geom_type[first] == mjGEOM_PLANE && model->geom_bodyid[first] == 0;
      if (!is_on_plane || !mixes_exactly(model, first, second)) return std::nullopt;
      const int body = model->geom_bodyid[second];  // its signature with the world, too
      if (std::find(excluded, excluded + model->nexclude, body) == excluded + model->nexclude) {
        couples.push_back({body, first, second});
      }
    }
  }
  std::sort(couples.begin(), couples.end(), [](const Couple& a, const Couple& b) {
    return std::tie(a.body, a.plane, a.geom) < std::tie(b.body, b.plane, b.geom);
  });
  return couples;
}

}  // namespace

CollisionList::CollisionList(mjModel* model) {
  // What sleeps, sleeps by islands.
  if (model->ntree <= 1 && !(model->opt.enableflags & mjENBL_SLEEP)) model->opt.disableflags |= mjDSBL_ISLAND;
  if (!is_plain(model)) return;
  const std::optional<std::vector<Couple>> couples = find_couples(model);
  if (!couples) return;
  for (const Couple& couple : *couples) add(model, couple.plane, couple.geom);
  install(model);
}

// MuJoCo's rules for two geoms: its manual, "Contact parameters".
void CollisionList::add(const mjModel* model, int plane, int geom) {
  int geoms[] = {plane, geom};
  const int* priority = model->geom_priority;
  if (priority[plane] > priority[geom]) geoms[1] = plane;
  if (priority[geom] > priority[plane]) geoms[0] = geom;
  const auto combine = [&](const mjtNum* numbers, int width, auto&& function, std::vector<mjtNum>& out) {
    for (int i = 0; i < width; ++i) out.push_back(function(numbers[geoms[0] * width + i], numbers[geoms[1] * width + i]));
  };
  const auto mean = [](mjtNum a, mjtNum b) { return 0.5 * a + 0.5 * b; };
  const auto least = [](mjtNum a, mjtNum b) { return std::min(a, b); };
  const bool has_standard_solref =
      model->geom_solref[geoms[0] * mjNREF] > 0 && model->geom_solref[geoms[1] * mjNREF] > 0;
  signature_.push_back(model->geom_bodyid[geom]);
  geom1_.push_back(plane);
  geom2_.push_back(geom);
  dim_.push_back(std::max(model->geom_condim[geoms[0]], model->geom_condim[geoms[1]]));
  if (has_standard_solref) {
    combine(model->geom_solref, mjNREF, mean, solref_);
  } else {
    combine(model->geom_solref, mjNREF, least, solref_);
  }
  solreffriction_.resize(solref_.size());  // zeros: as solref
  combine(model->geom_solimp, mjNIMP, mean, solimp_);
  margin_.push_back(model->geom_margin[plane] + model->geom_margin[geom]);
  gap_.push_back(model->geom_gap[plane] + model->geom_gap[geom]);
  adhesion_.push_back(0.0);
  for (const int coefficient : {0, 0, 1, 2, 2}) {  // sliding, spinning and rolling, along the contact's five axes
    friction_.push_back(std::max(model->geom_friction[3 * geoms[0] + coefficient],
                                 model->geom_friction[3 * geoms[1] + coefficient]));
  }
}

void CollisionList::install(mjModel* model) {
  model->npair = static_cast<mjtSize>(dim_.size());
  model->pair_dim = dim_.data();
  model->pair_geom1 = geom1_.data();
  model->pair_geom2 = geom2_.data();
  model->pair_signature = signature_.data();
  model->pair_solref = solref_.data();
  model->pair_solreffriction = solreffriction_.data();
  model->pair_solimp = solimp_.data();
  model->pair_margin = margin_.data();
  model->pair_gap = gap_.data();
  model->pair_adhesion = adhesion_.data();
  model->pair_friction = friction_.data();
  for (int* types : {model->geom_contype, model->geom_conaffinity}) std::fill_n(types, model->ngeom, 0);
  for (int* types : {model->body_contype, model->body_conaffinity}) std::fill_n(types, model->nbody, 0);
}

}  // namespace sb3_hrl
