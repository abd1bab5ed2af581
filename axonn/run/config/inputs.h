#pragma once

#include <string>
#include <vector>

#include "axonn/run/config/config.h"

namespace axonn {

/// A path, and the key or flag that names it: "model.path", "--out".
struct NamedPath {
  std::string name, path;
  bool texts = false;  ///< a folder that stands for the text files in it and below
};

using NamedPaths = std::vector<NamedPath>;

/// The files and folders that a run with this config reads, as far as they exist: the values of all
/// keys with OptionInfo::reads, and the file of the config unless this program wrote it for an
/// earlier run.
NamedPaths inputs_of(const Config& config);

/// Why a command that reads these inputs may not write, replace or remove one of the outputs: it is
/// an input, has one in it, or belongs to a model or to texts whose folder is an input. Links and
/// ".." are followed. "" if it may. Throws Error if a path cannot be followed.
std::string fault_of_outputs(const NamedPaths& outputs, const NamedPaths& inputs);

/// Throws UsageError if a command may not write `output`: as fault_of_outputs() says, or because it
/// exists, is not empty, and `overwrite` (--overwrite) does not allow to replace it. Devices and
/// pipes may always be written. Does nothing if the path is empty.
void claim_output(const NamedPath& output, const NamedPaths& inputs, bool overwrite);

/// claim_output() for figures and pictures that a command writes anew each time (--json, --svg):
/// they replace a file that begins as they do, without --overwrite. `begins` has the characters
/// that one may begin with, such as "{[" for JSON.
void claim_result(const NamedPath& output, const NamedPaths& inputs, std::string_view begins);
inline constexpr std::string_view kBeginsJson = "{[", kBeginsMarkup = "<";

}  // namespace axonn
