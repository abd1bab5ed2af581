#include "axonn/base/mapped_file.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "axonn/base/check.h"

namespace axonn {

bool path_exists(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

bool is_folder(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_directory(path, error);
}

bool is_plain_file(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_regular_file(path, error);
}

MappedFile::MappedFile(std::string path) : path_(std::move(path)) {
  // O_NONBLOCK: opening a pipe would wait for a writer.
  const int file = open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) refuse("cannot read ", path_, ": ", std::strerror(errno));
  struct stat status {};
  const char* problem = nullptr;
  if (fstat(file, &status) != 0) {
    problem = std::strerror(errno);
  } else if (!S_ISREG(status.st_mode)) {
    problem = "it is not a plain file";
  } else if (status.st_size > 0) {
    const auto bytes = static_cast<std::size_t>(status.st_size);
    void* memory = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED)
      problem = std::strerror(errno);
    else
      text_ = {static_cast<const char*>(memory), bytes};
  }
  close(file);
  if (problem) refuse("cannot read ", path_, ": ", problem);
}

MappedFile::~MappedFile() {
  if (!text_.empty()) munmap(const_cast<char*>(text_.data()), text_.size());
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), text_(std::exchange(other.text_, {})) {}

}  // namespace axonn
