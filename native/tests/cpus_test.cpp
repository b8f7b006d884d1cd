#include "sb3_hrl/cpus.hpp"

#include <sched.h>
#include <stdlib.h>

#include <fstream>
#include <functional>
#include <future>
#include <limits>
#include <map>
#include <string>

#include "check.hpp"

namespace sb3_hrl::test {
namespace {

namespace fs = std::filesystem;

constexpr double kUnlimited = std::numeric_limits<double>::infinity();

// A folder that stands for "/", removed at the end.
class FakeRoot {
 public:
  FakeRoot() {
    std::string pattern = (fs::temp_directory_path() / "sb3_hrl_XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
    path_ = pattern;
  }
  ~FakeRoot() { fs::remove_all(path_); }
  FakeRoot(const FakeRoot&) = delete;
  FakeRoot& operator=(const FakeRoot&) = delete;

  void write(const fs::path& file, const std::string& text) const {
    fs::create_directories((path_ / file).parent_path());
    std::ofstream(path_ / file) << text;
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

const char* const kV2Mount = "31 23 0:28 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";

void no_groups_at_all() {
  const FakeRoot root;
  CHECK_EQUAL(cgroup_cpus(root.path()), kUnlimited);
}

void v2_takes_the_tightest_of_group_and_parents() {
  const FakeRoot root;
  root.write("proc/self/mountinfo", kV2Mount);
  root.write("proc/self/cgroup", "0::/user/job\n");
  root.write("sys/fs/cgroup/user/job/cpu.max", "max 100000\n");
  CHECK_EQUAL(cgroup_cpus(root.path()), kUnlimited);
  root.write("sys/fs/cgroup/user/cpu.max", "250000 100000\n");
  CHECK_EQUAL(cgroup_cpus(root.path()), 2.5);
  root.write("sys/fs/cgroup/user/job/cpu.max", "50000 100000\n");
  CHECK_EQUAL(cgroup_cpus(root.path()), 0.5);
  CHECK_EQUAL(available_cpus(root.path()), 1);
  root.write("sys/fs/cgroup/other/cpu.max", "10000 100000\n");  // a sibling does not bind
  CHECK_EQUAL(cgroup_cpus(root.path()), 0.5);
}

void v2_inside_a_container() {
  const FakeRoot root;
  root.write("proc/self/mountinfo", kV2Mount);
  root.write("proc/self/cgroup", "0::/\n");
  root.write("sys/fs/cgroup/cpu.max", "300000 200000\n");
  CHECK_EQUAL(cgroup_cpus(root.path()), 1.5);
  root.write("proc/self/cgroup", "0::/../elsewhere\n");  // outside the namespace: only the mount can be read
  CHECK_EQUAL(cgroup_cpus(root.path()), 1.5);
}

void v1_with_and_without_a_namespace() {
  const FakeRoot root;
  root.write("proc/self/cgroup", "4:memory:/\n3:cpu,cpuacct:/docker/abc\n2:cpuset:/\n");
  // Only the container's part is mounted, so that the host's path is no path here.
  root.write("proc/self/mountinfo",
             "36 31 0:33 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
             "32 31 0:29 /docker/abc /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n");
  root.write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
  root.write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  CHECK_EQUAL(cgroup_cpus(root.path()), kUnlimited);
  root.write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "150000\n");
  CHECK_EQUAL(cgroup_cpus(root.path()), 1.5);
  // The whole hierarchy is mounted.
  root.write("proc/self/mountinfo", "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n");
  CHECK_EQUAL(cgroup_cpus(root.path()), kUnlimited);
  root.write("sys/fs/cgroup/cpu/docker/abc/cpu.cfs_quota_us", "20000\n");
  root.write("sys/fs/cgroup/cpu/docker/abc/cpu.cfs_period_us", "10000\n");
  CHECK_EQUAL(cgroup_cpus(root.path()), 2.0);
}

void affinity_bounds_the_count() {
  const FakeRoot root;
  // Affinity belongs to a thread: change that of one that ends here.
  std::async(std::launch::async, [&] {
    cpu_set_t all, one;
    if (sched_getaffinity(0, sizeof(all), &all) != 0) throw std::runtime_error("sched_getaffinity failed");
    CHECK_EQUAL(available_cpus(root.path()), CPU_COUNT(&all));
    int first = 0;
    while (!CPU_ISSET(first, &all)) ++first;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    if (sched_setaffinity(0, sizeof(one), &one) != 0) throw std::runtime_error("sched_setaffinity failed");
    CHECK_EQUAL(available_cpus(root.path()), 1);
  }).get();
}

}  // namespace

void add_cpus_tests(std::map<std::string, std::function<void()>>& tests) {
  tests["cpus: no groups at all"] = no_groups_at_all;
  tests["cpus: v2 takes the tightest of group and parents"] = v2_takes_the_tightest_of_group_and_parents;
  tests["cpus: v2 inside a container"] = v2_inside_a_container;
  tests["cpus: v1 with and without a namespace"] = v1_with_and_without_a_namespace;
  tests["cpus: affinity bounds the count"] = affinity_bounds_the_count;
}

}  // namespace sb3_hrl::test
