#include "sb3_hrl/collision_list.hpp"

#include <algorithm>
#include <cstddef>
#include <tuple>

namespace sb3_hrl {
namespace {

// Above this many pairs the search is left to MuJoCo (docs/native_vec_env.md has the measurement).
constexpr std::size_t kMaxPairs = 128;

// What MuJoCo needs of its arena for each pair (some 260 bytes), and room to spare: a model's own size may be tight.
constexpr std::size_t kArenaPerPair = 512;

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

// With equal weights the mean is rounded once, whatever the order and the instructions; otherwise the last bit is open.
bool mixes_exactly(const mjModel* model, int geom1, int geom2) {
  return model->geom_priority[geom1] != model->geom_priority[geom2] ||
         model->geom_solmix[geom1] == model->geom_solmix[geom2];
}

}  // namespace

CollisionList::CollisionList(mjModel* model) {
  if (model->ntree <= 1) model->opt.disableflags |= mjDSBL_ISLAND;
  if (!is_plain(model)) return;
  const std::vector<Pair> pairs = find_pairs(model);
  const auto is_exact = [&](const Pair& pair) { return mixes_exactly(model, pair.geom1, pair.geom2); };
  if (pairs.size() > kMaxPairs || !std::all_of(pairs.begin(), pairs.end(), is_exact)) return;
  for (const Pair& pair : pairs) add(model, pair);
  install(model);
}

// In the order of MuJoCo's contacts: by bodies, then by geoms, of which the one whose type has the lower number comes first.
std::vector<CollisionList::Pair> CollisionList::find_pairs(const mjModel* model) const {
  const int* excluded = model->exclude_signature;
  std::vector<Pair> pairs;
  for (int first = 0; first < model->ngeom; ++first) {
    for (int second = first + 1; second < model->ngeom; ++second) {
      if (!can_touch(model, first, second)) continue;
      const int signature = (model->geom_bodyid[first] << 16) + model->geom_bodyid[second];  // geoms go by bodies
      if (std::find(excluded, excluded + model->nexclude, signature) != excluded + model->nexclude) continue;
      const bool is_swapped = model->geom_type[first] > model->geom_type[second];
      pairs.push_back({signature, is_swapped ? second : first, is_swapped ? first : second});
    }
  }
  std::sort(pairs.begin(), pairs.end(), [](const Pair& a, const Pair& b) {
    return std::tie(a.signature, a.geom1, a.geom2) < std::tie(b.signature, b.geom1, b.geom2);
  });
  return pairs;
}

// MuJoCo's rules for two geoms: its manual, "Contact parameters".
void CollisionList::add(const mjModel* model, const Pair& pair) {
  int geoms[] = {pair.geom1, pair.geom2};
  const int* priority = model->geom_priority;
  if (priority[geoms[0]] > priority[geoms[1]]) geoms[1] = geoms[0];
  if (priority[geoms[1]] > priority[geoms[0]]) geoms[0] = geoms[1];
  const auto combine = [&](const mjtNum* numbers, int width, auto&& function, std::vector<mjtNum>& out) {
    for (int i = 0; i < width; ++i) out.push_back(function(numbers[geoms[0] * width + i], numbers[geoms[1] * width + i]));
  };
  const auto mean = [](mjtNum a, mjtNum b) { return 0.5 * a + 0.5 * b; };
  const auto least = [](mjtNum a, mjtNum b) { return std::min(a, b); };
  const bool has_standard_solref =
      model->geom_solref[geoms[0] * mjNREF] > 0 && model->geom_solref[geoms[1] * mjNREF] > 0;
  signature_.push_back(pair.signature);
  geom1_.push_back(pair.geom1);
  geom2_.push_back(pair.geom2);
  dim_.push_back(std::max(model->geom_condim[geoms[0]], model->geom_condim[geoms[1]]));
  if (has_standard_solref) {
    combine(model->geom_solref, mjNREF, mean, solref_);
  } else {
    combine(model->geom_solref, mjNREF, least, solref_);
  }
  solreffriction_.resize(solref_.size());  // zeros: as solref
  combine(model->geom_solimp, mjNIMP, mean, solimp_);
  margin_.push_back(model->geom_margin[pair.geom1] + model->geom_margin[pair.geom2]);
  gap_.push_back(model->geom_gap[pair.geom1] + model->geom_gap[pair.geom2]);
  adhesion_.push_back(0.0);
  for (const int coefficient : {0, 0, 1, 2, 2}) {  // sliding, spinning and rolling, along the contact's five axes
    friction_.push_back(std::max(model->geom_friction[3 * geoms[0] + coefficient],
                                 model->geom_friction[3 * geoms[1] + coefficient]));
  }
}

void CollisionList::install(mjModel* model) {
  model->npair = static_cast<mjtSize>(dim_.size());
  model->narena += static_cast<mjtSize>(kArenaPerPair * dim_.size());
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
