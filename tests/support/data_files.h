#pragma once

#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <unistd.h>

#include "axonn/foundation/base/host.h"

namespace axonn::test {

/// Binds the calling thread to one core, so that data are tokenised by one thread, until it ends.
class OnOneCore {
 public:
  OnOneCore() { bind_this_thread({cores_.front()}); }
  ~OnOneCore() { bind_this_thread(cores_); }
  OnOneCore(const OnOneCore&) = delete;
  OnOneCore& operator=(const OnOneCore&) = delete;

 private:
  std::vector<int> cores_ = usable_cores();
};

/// A new temporary folder; the destructor removes it with its contents.
class TempFolder {
 public:
  TempFolder() {
    static std::atomic<int> count = 0;
    path_ = std::filesystem::temp_directory_path() /
            ("axonn-data-" + std::to_string(getpid()) + '-' + std::to_string(count++));
    std::filesystem::create_directories(path_);
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  std::string path() const { return path_.string(); }
  std::string path(const std::string& name) const { return (path_ / name).string(); }

  /// Writes a file and returns its path.
  std::string file(const std::string& name, const std::string& content) const {
    std::filesystem::create_directories((path_ / name).parent_path());
    std::filesystem::remove(path_ / name);  // overwriting a file would wait for the disk
    std::ofstream(path_ / name, std::ios::binary) << content;
    return path(name);
  }

  /// The number of files and folders in it.
  int entries() const {
    return static_cast<int>(std::distance(std::filesystem::directory_iterator(path_), {}));
  }

 private:
  std::filesystem::path path_;
};

inline std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace axonn::test
