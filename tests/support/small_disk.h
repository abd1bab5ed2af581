#pragma once

#include <filesystem>
#include <string>
#include <utility>

#include <sys/mount.h>

namespace axonn::testing_support {

/// A small file system in memory. The destructor unmounts it.
class SmallDisk {
 public:
  SmallDisk(std::string path, const std::string& size) : path_(std::move(path)) {
    std::filesystem::create_directories(path_);
    mounted_ = ::mount("tmpfs", path_.c_str(), "tmpfs", 0, ("size=" + size).c_str()) == 0;
  }
  ~SmallDisk() {
    if (mounted_) ::umount2(path_.c_str(), MNT_DETACH);
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;
  bool mounted() const { return mounted_; }

 private:
  std::string path_;
  bool mounted_ = false;
};

inline constexpr const char* kNoMount =
    "a small disk can only be mounted by root, where mounting is allowed";

}  // namespace axonn::testing_support
