#include "sb3_hrl/cpus.hpp"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace sb3_hrl {
namespace {

namespace fs = std::filesystem;

bool has_word(const std::string& comma_separated, const std::string& word) {
  return ("," + comma_separated + ",").find("," + word + ",") != std::string::npos;
}

// The quota that one control group sets for itself.
double group_cpus(const fs::path& group, bool is_v2) {
  // A missing file and the word "max" both leave the quota at zero or below, as v1's "-1" does.
  double quota = 0.0, period = 0.0;
  if (is_v2) {
    std::ifstream(group / "cpu.max") >> quota >> period;
  } else {
    std::ifstream(group / "cpu.cfs_quota_us") >> quota;
    std::ifstream(group / "cpu.cfs_period_us") >> period;
  }
  return quota > 0.0 && period > 0.0 ? quota / period : std::numeric_limits<double>::infinity();
}

// This process's group in the hierarchy that holds the cpu controller. Lines read "id:controllers:path".
fs::path own_group(const fs::path& root, bool is_v2) {
  std::ifstream file(root / "proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    std::istringstream fields(line);
    std::string id, controllers, path;
    std::getline(fields, id, ':');
    std::getline(fields, controllers, ':');
    std::getline(fields, path);
    if (is_v2 ? id == "0" : has_word(controllers, "cpu")) return path;
  }
  return "/";
}

int affinity_cpus() {
  // The kernel refuses a mask shorter than its own: double it until it fits.
  for (std::size_t n = 1; n <= 1024; n *= 2) {
    std::vector<cpu_set_t> mask(n);
    const std::size_t n_bytes = n * sizeof(cpu_set_t);
    if (sched_getaffinity(0, n_bytes, mask.data()) == 0) return CPU_COUNT_S(n_bytes, mask.data());
    if (errno != EINVAL) break;
  }
  return static_cast<int>(std::thread::hardware_concurrency());
}

}  // namespace

double cgroup_cpus(const fs::path& root) {
  double cpus = std::numeric_limits<double>::infinity();
  std::ifstream mounts(root / "proc/self/mountinfo");
  for (std::string line; std::getline(mounts, line);) {
    // "id parent device root point options [tags…] - type source super-options"
    std::istringstream fields(line);
    std::string word, mount_root, mount_point, type, options;
    fields >> word >> word >> word >> mount_root >> mount_point;
    while (fields >> word && word != "-") {
    }
    fields >> type >> word >> options;
    const bool is_v2 = type == "cgroup2";
    if (!is_v2 && !(type == "cgroup" && has_word(options, "cpu"))) continue;

    // The mount point may be this group already (a container sees its own part only); otherwise go down to it, since
    // each group on the way can set a quota.
    fs::path group = root / fs::path(mount_point).relative_path();
    cpus = std::min(cpus, group_cpus(group, is_v2));
    for (const fs::path& part : own_group(root, is_v2).lexically_relative(mount_root)) {
      group /= part;
      cpus = std::min(cpus, group_cpus(group, is_v2));
    }
  }
  return cpus;
}

int available_cpus(const fs::path& root) {
  const double cpus = std::min(static_cast<double>(affinity_cpus()), std::ceil(cgroup_cpus(root)));
  return std::max(1, static_cast<int>(cpus));
}

}  // namespace sb3_hrl
