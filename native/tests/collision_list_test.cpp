// A model with its list of collisions against the model as MuJoCo compiled it: the same contacts, the same bits.

#include "collision_list_test.hpp"

#include <cstddef>
#include <vector>

#include "check.hpp"
#include "sb3_hrl/collision_list.hpp"
#include "sb3_hrl/mujoco_handle.hpp"

namespace sb3_hrl::test {
namespace {

using Compiled = std::string (*)(const char*);

// Everything that the parameters of a contact are mixed of, bodies of several geoms, kinship, a weld, several trees.
const char* const kHeap = R"(
  <body name="a" pos="0 0 0.5"><freejoint/>
    <geom type="capsule" size="0.06 0.15" friction="0.4 0.01 0.001"/><geom type="sphere" size="0.1" pos="0.2 0 0"/>
    <body name="b" pos="-0.2 0 0"><joint axis="0 1 0"/>
      <geom type="box" size="0.08 0.05 0.04" condim="4"/><geom type="sphere" size="0.07" pos="-0.1 0.05 0" margin="0.01"/>
      <body name="c" pos="-0.2 0 0"><joint axis="1 0 0"/><geom type="capsule" size="0.04 0.1" priority="1"/></body>
    </body>
  </body>
  <body name="d" pos="0.05 0.02 0.9"><freejoint/>
    <geom name="ball" type="sphere" size="0.12" solref="-1000 -50"/>
    <geom type="box" size="0.05 0.05 0.1" pos="0 0.15 0" gap="0.02"/>
  </body>
  <body name="e" pos="-0.1 0.05 1.3"><freejoint/>
    <geom type="ellipsoid" size="0.1 0.07 0.05" solref="0.01 0.8" solimp="0.8 0.9 0.01 0.5 2"/>
    <geom type="capsule" size="0.03 0.1" pos="0 0.1 0" condim="6"/><geom type="sphere" size="0.04" contype="2" conaffinity="2"/>
  </body>
  <body pos="0.1 0 1.6"><freejoint/><geom size="0.05"/>
    <body pos="0 0 0.1"><geom type="cylinder" size="0.06 0.1" condim="1"/></body>
  </body>)";
const char* const kChain = R"(
  <body pos="0 0 0.6" euler="0 40 0"><freejoint/><geom type="capsule" fromto="0 0 0 0.3 0 0" size="0.05"/>
    <body pos="0.3 0 0"><joint axis="0 1 0"/><geom type="capsule" fromto="0 0 0 0.3 0 0" size="0.05"/>
      <body pos="0.3 0 0"><joint axis="0 1 0"/><geom type="capsule" fromto="0 0 0 0.3 0 0" size="0.05"/>
        <body pos="0.3 0 0"><joint axis="0 1 0"/><geom type="capsule" fromto="0 0 0 0.3 0 0" size="0.05"/></body>
      </body>
    </body>
  </body>)";

// Exactly at a plane: whether they touch is a matter of rounding.
const char* const kResting = R"(
  <body pos="0 0 0.1"><freejoint/><geom size="0.1"/><geom type="box" size="0.03 0.03 0.03" pos="0.5 0 -0.07"/></body>
  <body pos="1 0 0.05"><freejoint/><geom type="box" size="0.1 0.2 0.05"/></body>
  <body pos="0 1 0.07"><freejoint/><geom type="cylinder" size="0.1 0.07"/>
    <geom type="ellipsoid" size="0.1 0.1 0.07" pos="0.5 0 0"/></body>
  <body pos="1 1 0.3"><freejoint/><geom type="capsule" size="0.1 0.2"/></body>)";
// Bodies touch the floor and the wall, not each other.
const char* const kApart = "<default><geom conaffinity=\"0\"/></default>";

std::string world(const std::string& bodies, const std::string& more = "") {
  return "<mujoco><option timestep=\"0.002\"/><worldbody>"
         "<geom name=\"floor\" type=\"plane\" size=\"3 3 1\" conaffinity=\"1\"/>"
         "<geom type=\"plane\" size=\"3 3 1\" pos=\"-0.5 0 0\" zaxis=\"1 0.1 0.4\" conaffinity=\"1\" friction=\"0.2\"/>" +
         bodies + "</worldbody>" + more + "</mujoco>";
}

// The state after every step, and the contacts' geoms and distances.
std::vector<double> fall(const mjModel* model) {
  const DataHandle data = make_data(model);
  std::vector<double> seen;
  for (int i = 0; i < 1500; ++i) {
    mj_step(model, data.get());
    seen.insert(seen.end(), data->qpos, data->qpos + model->nq);
    for (int c = 0; c < data->ncon; ++c) {
      const mjContact& contact = data->contact[c];
      seen.insert(seen.end(), {double(contact.geom[0]), double(contact.geom[1]), contact.dist, contact.friction[0]});
    }
  }
  return seen;
}

// How many pairs the list has, or -1 if there is none; checks that it changes nothing.
int n_listed(Compiled compiled, const std::string& xml) {
  const std::string bytes = compiled(xml.c_str());
  const ModelHandle plain = load_model(bytes), listed = load_model(bytes);
  const CollisionList list(listed.get());
  const std::vector<double> expected = fall(plain.get());
  CHECK_EQUAL(expected.size() > 1500 * static_cast<std::size_t>(plain->nq), true);  // it has touched something
  CHECK_EQUAL(expected == fall(listed.get()), true);
  return listed->geom_contype[0] == plain->geom_contype[0] ? -1 : static_cast<int>(listed->npair);
}

void a_list_changes_nothing(Compiled compiled) {
  const std::string apart = kApart;
  CHECK_EQUAL(n_listed(compiled, world(kHeap, apart)), 22);  // eleven geoms, two planes
  CHECK_EQUAL(n_listed(compiled, world(kHeap, apart + "<contact><exclude body1=\"d\" body2=\"world\"/></contact>")), 18);
  CHECK_EQUAL(n_listed(compiled, world(kChain, apart)), 8);
  CHECK_EQUAL(n_listed(compiled, world(kResting, apart)), 12);
  for (const char* solver : {"PGS", "CG"}) {
    CHECK_EQUAL(n_listed(compiled, world(kChain, apart + "<option cone=\"elliptic\" solver=\"" + solver + "\"/>")), 8);
  }
}

void other_models_stay_as_they_are(Compiled compiled) {
  const std::string apart = kApart;
  CHECK_EQUAL(n_listed(compiled, world(kHeap)), -1);  // its bodies touch each other
  CHECK_EQUAL(n_listed(compiled, world(kChain)), -1);
  const std::string table = "<geom type=\"box\" size=\"1 1 0.01\" conaffinity=\"1\"/>";
  CHECK_EQUAL(n_listed(compiled, world(table + kHeap, apart)), -1);
  for (const char* more : {"<contact><pair geom1=\"floor\" geom2=\"ball\"/></contact>",
                           "<option><flag midphase=\"disable\"/></option>", "<option><flag sleep=\"enable\"/></option>",
                           "<option><flag override=\"enable\"/></option>", "<option><flag speculative=\"enable\"/></option>"}) {
    CHECK_EQUAL(n_listed(compiled, world(kHeap, apart + more)), -1);
  }
  for (const char* own : {"solmix=\"3\"", "adhesion=\"1\"", "surfacevel=\"0.1 0 0 0 0 0\""}) {
    const std::string ball = std::string("<body pos=\"0.5 0 1\"><freejoint/><geom size=\"0.1\" ") + own + "/></body>";
    CHECK_EQUAL(n_listed(compiled, world(ball, apart)), -1);
  }
  const std::string mocap = "<body mocap=\"true\"><geom size=\"0.1\" contype=\"0\"/></body>";
  CHECK_EQUAL(n_listed(compiled, world(mocap + kChain, apart)), -1);
}

void only_one_tree_awake_has_no_islands(Compiled compiled) {
  const auto has_islands = [&](const std::string& xml) {
    const ModelHandle model = load_model(compiled(xml.c_str()));
    const CollisionList list(model.get());
    return (model->opt.disableflags & mjDSBL_ISLAND) == 0;
  };
  CHECK_EQUAL(has_islands(world(kChain)), false);
  CHECK_EQUAL(has_islands(world(kChain, "<option><flag sleep=\"enable\"/></option>")), true);
  CHECK_EQUAL(has_islands(world(kHeap)), true);
}

void a_wrong_list_would_be_seen(Compiled compiled) {
  const std::string bytes = compiled(world(kHeap, kApart).c_str());
  const ModelHandle plain = load_model(bytes), wrong = load_model(bytes);
  const CollisionList list(wrong.get());
  for (int i = 0; i < wrong->npair; ++i) wrong->pair_friction[5 * i] *= 1.0 + 1e-15;
  CHECK_EQUAL(fall(plain.get()) == fall(wrong.get()), false);
}

}  // namespace

void add_collision_list_tests(std::map<std::string, std::function<void()>>& tests, Compiled compiled) {
  tests["collision list: it changes nothing"] = [compiled] { a_list_changes_nothing(compiled); };
  tests["collision list: other models stay as they are"] = [compiled] { other_models_stay_as_they_are(compiled); };
  tests["collision list: only one tree that is awake has no islands"] = [compiled] {
    only_one_tree_awake_has_no_islands(compiled);
  };
  tests["collision list: a wrong one would be seen"] = [compiled] { a_wrong_list_would_be_seen(compiled); };
}

}  // namespace sb3_hrl::test
