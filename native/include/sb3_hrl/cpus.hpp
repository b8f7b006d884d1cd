#pragma once

#include <filesystem>

namespace sb3_hrl {

// CPUs that the control groups of this process allow it (v1 and v2, parents included); infinity without a quota.
// `root` is where /proc and /sys are looked for.
double cgroup_cpus(const std::filesystem::path& root = "/");

// Threads that can run at once in this process: CPU affinity, capped by the quota rounded up, and at least one.
int available_cpus(const std::filesystem::path& root = "/");

}  // namespace sb3_hrl
