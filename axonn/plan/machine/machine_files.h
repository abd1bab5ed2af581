#pragma once

#include <span>
#include <string_view>

namespace axonn {

/// A file of machines/, embedded when the program was built.
struct MachineFile {
  std::string_view name;  ///< without .toml
  std::string_view text;
};

/// All files, sorted by name.
std::span<const MachineFile> machine_files();

}  // namespace axonn
