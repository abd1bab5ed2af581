#include "axonn/run/config/inputs.h"

#include <algorithm>
#include <filesystem>
#include <sstream>
#include <utility>

#include "axonn/data/storage/checkpoint/checkpoint_index.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/files.h"
#include "axonn/network/model/model_files.h"
#include "axonn/ranks/comm/texts.h"
#include "axonn/run/config/config_options.h"

namespace axonn {

namespace {

namespace fs = std::filesystem;

/// The existing paths among the ways to read a value: a path, a pattern, the prefix of Megatron's
/// token files, or a weighted blend of these.
std::vector<std::string> paths_in(const std::string& value) {
  std::vector<std::string> words{value};
  std::istringstream stream(value);
  for (std::string word; stream >> word;)
    if (word != value) words.push_back(word);
  std::vector<std::string> found;
  for (const std::string& word : words)
    for (const char* end : {"", ".bin", ".idx"}) {
      std::vector<std::string> matching;
      const std::string ignored = fault_of([&] { matching = expand_pattern(word + end); });
      for (const std::string& path : matching)
        if (!path.empty() && path_exists(path)) found.push_back(path);
    }
  return found;
}

void add_inputs(const Option& option, NamedPaths& inputs) {
  if (option.info().reads == Reads::nothing) return;
  for (const std::string& value : option.strings())
    for (const std::string& path : paths_in(value))
      inputs.push_back({option.key(), path, option.info().reads == Reads::texts});
}

/// Whether this program wrote the config file, for another run of the same (config_toml()).
bool is_written_config(const std::string& path) {
  std::string text;
  return fault_of([&] { text = read_text(path); }).empty() && text.starts_with(kWrittenConfig);
}

bool lies_in(const fs::path& inner, const fs::path& outer) {
  return std::ranges::mismatch(inner, outer).in2 == outer.end();
}

/// Whether an existing path is, or has in it, a text file of a folder that stands for its texts.
bool has_texts(const fs::path& path, const fs::path& folder) {
  if (!lies_in(path, folder)) return false;
  if (is_plain_file(path.string())) return is_text_name(path.native());
  std::vector<std::string> texts;
  const std::string none = fault_of([&] { texts = text_files({path.string()}); });
  return !texts.empty();
}

/// Whether an existing path is a part of the model, tokenizer or checkpoint in a folder.
bool is_part_of(const fs::path& path, const fs::path& folder) {
  const auto holds = [](const fs::path& where, std::string_view file) {
    return path_exists((where / file).string());
  };
  const fs::path parent = path.parent_path();
  if (!path_exists(path.string()) || !is_folder(folder.string())) return false;
  if (parent.parent_path() == folder && holds(parent, kIndexName)) return true;
  if (parent != folder) return false;
  const std::string name = path.filename();
  const bool of_run = name == "checkpoints" && is_folder(path.string());
  return holds(folder, kIndexName) || is_model_file(name) ||
         (of_run && !holds(folder, "config.json"));
}

/// The path, and where it leads if it does not show.
std::string shown(const std::string& path, const fs::path& real) {
  const bool plain = fs::absolute(path).lexically_normal() == real;
  return plain ? path : concat(path, " (that is ", real.string(), ')');
}

/// Whether writing to the path replaces nothing: a device, a pipe, or what this process has open,
/// which may be a file that the shell was told to write.
bool is_device(const std::string& path) {
  for (const std::string_view open : {"/dev/stdout", "/dev/stderr", "/dev/fd/", "/proc/self/fd/"})
    if (path.starts_with(open)) return true;
  return path_exists(path) && !is_plain_file(path) && !is_folder(path);
}

/// Whether there is something that writing would replace.
bool has_content(const std::string& path) {
  std::error_code error;
  return path_exists(path) && !is_device(path) && !fs::is_empty(path, error);
}

}  // namespace

NamedPaths inputs_of(const Config& given) {
  Config config = given;
  NamedPaths inputs;
  OptionList list;
  list_options(config, list);
  for (const OptionList::Section& section : list.sections()) {
    for (const Option& option : section.options) add_inputs(option, inputs);
    if (!section.entries) continue;
    section.entries->each([&](const OptionList& entry) {
      for (const OptionList::Section& one : entry.sections())
        for (const Option& option : one.options) add_inputs(option, inputs);
    });
  }
  if (!config.file.empty() && path_exists(config.file) && !is_written_config(config.file))
    inputs.push_back({"CONFIG", config.file});
  return inputs;
}

std::string fault_of_outputs(const NamedPaths& outputs, const NamedPaths& inputs) {
  std::vector<std::pair<const NamedPath*, fs::path>> read;  // and where they really are
  for (const NamedPath& input : inputs)
    if (!input.path.empty() && path_exists(input.path) && !is_device(input.path))
      read.emplace_back(&input, real_path(input.path));
  for (const NamedPath& output : outputs) {
    if (output.path.empty() || is_device(output.path)) continue;
    const fs::path to = real_path(output.path);
    for (const auto& [input, from] : read)
      if (lies_in(from, to) || is_part_of(to, from) || (input->texts && has_texts(to, from)))
        return concat(output.name, ": ", shown(output.path, to), " would be replaced, but ",
                      input->name, " = ", shown(input->path, from), " is read; choose another ",
                      output.name);
  }
  return {};
}

void claim_output(const NamedPath& output, const NamedPaths& inputs, bool overwrite) {
  if (const std::string fault = fault_of_outputs({output}, inputs); !fault.empty()) refuse(fault);
  if (!overwrite && !output.path.empty() && has_content(output.path))
    refuse(output.name, ' ', output.path, " exists already; --overwrite replaces it");
}

void claim_result(const NamedPath& output, const NamedPaths& inputs, std::string_view begins) {
  if (const std::string fault = fault_of_outputs({output}, inputs); !fault.empty()) refuse(fault);
  if (output.path.empty() || !is_plain_file(output.path) || !has_content(output.path)) return;
  std::string first(1, '\0');
  InputFile(output.path).read(0, std::as_writable_bytes(std::span(first)));
  if (begins.find(first.front()) == begins.npos)
    refuse(output.name, ' ', output.path,
           " exists and is no such file; it is not replaced, so choose another name");
}

}  // namespace axonn
