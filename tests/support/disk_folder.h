#pragma once

#include <string>

#include <linux/magic.h>
#include <sys/vfs.h>

#include "tests/support/build_paths.h"

namespace axonn::test {

/// A folder for files that are not in memory, as temporary ones are on some systems.
inline std::string disk_folder() { return build_folder() + "/offloaded"; }

/// Whether it is on a disk.
inline bool has_disk() {
  struct statfs system = {};
  return statfs(build_folder().c_str(), &system) == 0 && system.f_type != TMPFS_MAGIC;
}

inline constexpr const char* kNoDisk = "the build is in memory (tmpfs)";

}  // namespace axonn::test
