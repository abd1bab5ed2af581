#include "axonn/base/mapped_file.h"

#include <cerrno>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "axonn/base/check.h"
#include "axonn/base/files.h"

namespace axonn {

MappedFile::MappedFile(std::string path) : path_(std::move(path)) {
  // O_NONBLOCK: opening a pipe would wait for a writer.
  const FileHandle file(open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status {};
  if (file.get() < 0 || fstat(file.get(), &status) != 0)
    refuse("cannot read ", path_, ": ", cause_and_remedy(errno));
  if (!S_ISREG(status.st_mode)) refuse("cannot read ", path_, ": it is not a regular file");
  if (status.st_size == 0) return;
  const auto bytes = static_cast<std::size_t>(status.st_size);
  void* memory = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file.get(), 0);
  if (memory == MAP_FAILED) refuse("cannot read ", path_, ": ", cause_and_remedy(errno));
  text_ = {static_cast<const char*>(memory), bytes};
}

MappedFile::~MappedFile() {
  if (!text_.empty()) munmap(const_cast<char*>(text_.data()), text_.size());
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), text_(std::exchange(other.text_, {})) {}

}  // namespace axonn
