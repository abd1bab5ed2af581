#include "axonn/plan/machine/machine.h"

#include <algorithm>

#include "axonn/base/check.h"
#include "axonn/base/files.h"
#include "axonn/options/options_print.h"
#include "axonn/options/options_read.h"
#include "axonn/options/options_suggest.h"
#include "axonn/plan/machine/machine_files.h"
#include "axonn/plan/machine/machine_options.h"

namespace axonn {

namespace {

/// `place`: the name of the machine or its file, for messages.
void validate(const Machine& machine, const std::string& place) {
  const auto need = [&](bool is_set, const char* what) {
    if (!is_set)
      refuse("no plan can be made for the machine ", place, ": ", what,
             "; `axonn probe` writes a complete file");
  };
  need(machine.memory_bytes > 0, "[machine] memory_bytes is missing");
  need(machine.memory_bytes_per_s > 0, "[machine] memory_bytes_per_s is missing");
  need(machine.bf16.flops_per_s > 0 || machine.f32.flops_per_s > 0,
       "flops_per_s is missing, in [products_bf16] and in [products_f32]");
  need(machine.attention_flops_per_s > 0, "[machine] attention_flops_per_s is missing");
  need(machine.node_bytes_per_s > 0 || machine.device_bytes_per_s > 0 || !machine.groups.empty(),
       "it has no bandwidth; set [links] node_bytes_per_s and device_bytes_per_s");
  const bool node_is_covered = machine.devices_per_node == 1 || machine.device_bytes_per_s > 0 ||
                               std::ranges::any_of(machine.groups, [&](const GroupRate& group) {
                                 return group.inner * group.size <= machine.devices_per_node;
                               });
  need(node_is_covered,
       "the bandwidth between devices of a node is missing; set "
       "[links] device_bytes_per_s");
  for (const GroupRate& group : machine.groups)
    need(group.bytes_per_s > 0, "a [[group]] has no bytes_per_s");
}

OptionList options_of(Machine& machine) {
  OptionList list;
  list_options(machine, list);
  list.repeated("group", "Groups of one shape that run at once", [&machine](OptionList& entry) {
    machine.groups.emplace_back();
    list_options(machine.groups.back(), entry);
  });
  return list;
}

bool is_file_name(const std::string& text) {
  return text.ends_with(".toml") || text.find('/') != std::string::npos;
}

}  // namespace

Machine read_machine(const std::string& name_or_file) {
  Machine machine;
  const OptionList list = options_of(machine);
  Origins origins;
  const auto known = std::ranges::find(machine_files(), name_or_file, &MachineFile::name);
  if (known != machine_files().end()) {
    read_toml_text(list, known->text, name_or_file, origins);
  } else if (is_file_name(name_or_file) || path_exists(name_or_file)) {
    read_toml(list, name_or_file, origins);
  } else {
    const std::vector<std::string> names = machine_names(), guesses = nearest(name_or_file, names);
    refuse("there is no machine '", name_or_file, "'",
           guesses.empty()
               ? "; the known machines are " + join(names) + ", and a file's name ends in .toml"
               : did_you_mean(guesses));
  }
  std::erase_if(machine.rowwise_bytes_per_s, [](const auto& rate) { return rate.second == 0; });
  validate(machine, name_or_file);
  return machine;
}

std::vector<std::string> machine_names() {
  std::vector<std::string> names;
  for (const MachineFile& file : machine_files()) names.emplace_back(file.name);
  return names;
}

std::string to_toml(const Machine& machine) {
  Machine shown = machine;
  const OptionList list = options_of(shown);
  AXONN_CHECK(list.find("rowwise")->options.size() == shown.rowwise_bytes_per_s.size(),
              "to_toml: the machine '", machine.name,
              "' has a rate of an unknown row-wise operation");
  std::string text = to_toml(list, [](const Option& option) {
    const OptionInfo& info = option.info();
    return TomlNote{.comment = info.unit.empty() ? std::string(info.help)
                                                 : concat(info.help, " (", info.unit, ')'),
                    .disabled = option.section() == "rowwise" && option.text() == "0.0"};
  });
  for (GroupRate& group : shown.groups) {
    OptionList entry;
    list_options(group, entry);
    text += "\n[[group]]\n";
    for (const Option& option : entry.sections().front().options)
      text += option.name() + " = " + option.text() + '\n';
  }
  return text;
}

}  // namespace axonn
