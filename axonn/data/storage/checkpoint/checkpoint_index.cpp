#include "axonn/data/storage/checkpoint/checkpoint_index.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <functional>
#include <unordered_map>

#include <nlohmann/json.hpp>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/files.h"
#include "axonn/foundation/base/hash.h"
#include "axonn/foundation/base/numbers.h"
#include "axonn/ranks/comm/texts.h"

namespace axonn {

namespace {

using nlohmann::json;

constexpr std::string_view kStep = "step-";
constexpr std::string_view kFormat = "axonn checkpoint";
constexpr std::int64_t kVersion = 1, kVersionOfCodes = 2;
constexpr std::string_view kValueCodes[] = {"f32", "bf16", "dynamic", "dynamic_unsigned"};
constexpr std::string_view kTailBegin = ",\n\"xxh3\": \"", kTailEnd = "\"}\n";
constexpr std::size_t kTailBytes = kTailBegin.size() + 16 + kTailEnd.size();
constexpr std::size_t kNumbersOfASlice = 7;

json to_json(const StoredFile& file) {
  json out = {{"name", file.name},
              {"bytes", file.bytes},
              {"xxh3", json::array()},
              {"blocks", json::array()}};
  for (std::uint64_t sum : file.checksums) out["xxh3"].push_back(hex_of(sum));
  for (const StoredBlock& block : file.blocks) {
    json numbers = json::array();
    for (const auto& [parameter, s] : block.slices)
      for (std::int64_t n : {parameter, s.row, s.rows, s.col, s.cols, s.begin, s.end})
        numbers.push_back(n);
    json entry = {{"offsets", block.offsets}, {"slices", std::move(numbers)}};
    for (const auto& [kind, coded] : block.coded)
      entry["coded"][kind] = {kValueCodes[static_cast<std::size_t>(coded.code)], coded.absmax};
    out["blocks"].push_back(std::move(entry));
  }
  return out;
}

std::string dump(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::int64_t version_of(const CheckpointIndex& index) {
  for (const StoredFile& file : index.files)
    for (const StoredBlock& block : file.blocks)
      if (!block.coded.empty()) return kVersionOfCodes;
  return kVersion;
}

// The functions below throw UsageError for a fault; parse_index() adds the path.

/// A count or an offset: every number of an index is one.
std::int64_t number(const json& value) {
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() > std::uint64_t{INT64_MAX})
    refuse("found ", dump(value), ", expected a count of 0 or more");
  return value.get<std::int64_t>();
}

std::string text(const json& value) {
  if (!value.is_string()) refuse("a string is missing");
  return value.get<std::string>();
}

/// The name of a file in the checkpoint's own folder.
std::string file_name(const json& value) {
  std::string name = text(value);
  if (name.empty() || name == "." || name == ".." || name.find('/') != name.npos ||
      name.find('\0') != name.npos)
    refuse("\"", name, "\" is not the name of a file in the checkpoint's folder");
  return name;
}

StoredBlock::Coded coded_of(const json& value) {
  const auto found = std::ranges::find(kValueCodes, text(value.at(0)));
  if (found == std::end(kValueCodes)) refuse("it has values of type ", dump(value.at(0)));
  return {static_cast<ValueCode>(found - std::begin(kValueCodes)), number(value.at(1))};
}

std::uint64_t checksum(const json& value) {
  const auto sum = parse_hex(text(value));
  if (!sum) refuse("a checksum is not 16 hex digits");
  return *sum;
}

StoredFile file_of(const json& object) {
  StoredFile file;
  file.name = file_name(object.at("name"));
  file.bytes = number(object.at("bytes"));
  for (const json& sum : object.at("xxh3")) file.checksums.push_back(checksum(sum));
  for (const json& from : object.at("blocks")) {
    StoredBlock& block = file.blocks.emplace_back();
    for (const auto& [kind, offset] : from.at("offsets").items())
      block.offsets[kind] = number(offset);
    if (from.contains("coded"))
      for (const auto& [kind, coded] : from.at("coded").items())
        block.coded[kind] = coded_of(coded);
    const json& numbers = from.at("slices");
    if (!numbers.is_array() || numbers.size() % kNumbersOfASlice != 0)
      refuse("a list of slices does not have seven numbers for each slice");
    for (std::size_t i = 0; i < numbers.size(); i += kNumbersOfASlice) {
      std::array<std::int64_t, kNumbersOfASlice> n;
      for (std::size_t k = 0; k < kNumbersOfASlice; ++k) n[k] = number(numbers[i + k]);
      block.slices.push_back({n[0], {n[1], n[2], n[3], n[4], n[5], n[6]}});
    }
  }
  return file;
}

void check_block(const CheckpointIndex& index, const StoredFile& file, const StoredBlock& block) {
  std::int64_t count = 0, blocks = 0;
  for (const auto& [place, slice] : block.slices) {
    if (place >= std::ssize(index.parameters))
      refuse("a slice belongs to a parameter that is not listed");
    const auto& parameter = index.parameters[place];
    if (!lies_in(slice, parameter.rows, parameter.cols) ||
        __builtin_add_overflow(count, slice.count(), &count))
      refuse("a slice of ", parameter.name, " in ", file.name, " exceeds the parameter's shape");
    if (slice.count() > file.bytes) refuse(file.name, " is too short for its slices");
    blocks += code_blocks(slice.count());
  }
  const auto check_extent = [&](const std::string& kind, std::int64_t offset, std::int64_t values,
                                std::int64_t each) {
    if (offset % kElementBytes != 0)
      refuse(kind, " in ", file.name, " does not begin at a multiple of 4 bytes");
    if (offset > file.bytes || values > (file.bytes - offset) / each)
      refuse(file.name, " is too short for its slices of ", kind);
  };
  for (const auto& [kind, offset] : block.offsets) {
    const ValueCode code = block.code_of(kind);
    check_extent(kind, offset, code == ValueCode::f32 ? count : blocks * kCodeBlock,
                 bytes_of(code));
  }
  for (const auto& [kind, coded] : block.coded) {
    if (!block.offsets.contains(kind)) refuse(kind, " in ", file.name, " has a type but no values");
    if (has_absmax(coded.code)) check_extent(kind, coded.absmax, blocks, kElementBytes);
  }
}

void check(const CheckpointIndex& index) {
  for (const StoredParameter& parameter : index.parameters) {
    std::int64_t count = 0;
    if (__builtin_mul_overflow(parameter.rows, parameter.cols, &count))
      refuse(parameter.name, " has too many elements");
  }
  for (const StoredFile& file : index.files) {
    const auto pieces = file.bytes / kPieceBytes + (file.bytes % kPieceBytes != 0);
    if (std::ssize(file.checksums) != pieces)
      refuse(file.name, " has ", file.checksums.size(), " checksums for ", file.bytes, " bytes");
    for (const StoredBlock& block : file.blocks) check_block(index, file, block);
  }
}

CheckpointIndex index_of(std::string_view body) {
  CheckpointIndex index;
  // Each file is converted as soon as it is parsed and then dropped: the whole tree would take
  // several times the memory of the text. Files are the only objects at this depth.
  const auto take_files = [&](int depth, json::parse_event_t event, json& parsed) {
    if (depth != 2 || event != json::parse_event_t::object_end) return true;
    index.files.push_back(file_of(parsed));
    return false;
  };
  const json root = json::parse(concat(body, "}"), take_files);
  if (text(root.at("format")) != kFormat) refuse("its \"format\" is not \"axonn checkpoint\"");
  const std::int64_t version = number(root.at("version"));
  if (version != kVersion && version != kVersionOfCodes)
    refuse("it has version ", version, ", but this program reads versions ", kVersion, " and ",
           kVersionOfCodes);
  index.step = number(root.at("step"));
  index.ranks = number(root.at("ranks"));
  for (const json& kind : root.at("kinds")) index.kinds.push_back(text(kind));
  for (const json& p : root.at("parameters"))
    index.parameters.push_back({text(p.at(0)), number(p.at(1)), number(p.at(2))});
  for (const json& t : root.at("texts"))
    index.texts[file_name(t.at(0))] = {number(t.at(1)), checksum(t.at(2))};
  check(index);
  return index;
}

}  // namespace

std::string step_name(std::int64_t step) { return concat(kStep, step); }

std::int64_t step_of(std::string_view name) {
  if (!name.starts_with(kStep)) return -1;
  const auto step = parse_integer(name.substr(kStep.size()));
  return step && *step >= 0 && name == step_name(*step) ? *step : -1;
}

std::vector<std::int64_t> steps_in(const std::string& folder) {
  std::vector<std::int64_t> steps;
  std::error_code error;
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end;
       at.increment(error))
    if (const std::int64_t step = step_of(at->path().filename().string()); step >= 0)
      steps.push_back(step);
  std::ranges::sort(steps, std::greater());
  return steps;
}

std::int64_t step_named_in(const std::string& file) {
  constexpr std::int64_t kMost = 100;  // bytes
  std::string name = read_text(file, kMost);
  if (name.ends_with('\n')) name.pop_back();
  const std::int64_t step = step_of(name);
  if (step < 0) refuse(file, " is altered: it does not name a checkpoint");
  return step;
}

std::int64_t best_step(const std::string& folder) {
  const std::string path = concat(folder, '/', kBestName);
  std::int64_t step = -1;
  if (path_exists(path)) fault_of([&] { step = step_named_in(path); });
  return step;
}

std::string checkpoints_of(const std::string& path) {
  const std::string own = path + "/checkpoints";
  return has_checkpoint(own) && !has_checkpoint(path) ? own : path;
}

std::string to_text(const CheckpointIndex& index) {
  json parameters = json::array(), texts = json::array();
  for (const StoredParameter& p : index.parameters) parameters.push_back({p.name, p.rows, p.cols});
  for (const auto& [name, stored] : index.texts)
    texts.push_back({name, stored.bytes, hex_of(stored.checksum)});
  std::string out = concat(
      "{\"format\": \"", kFormat, "\", \"version\": ", version_of(index),
      ", \"step\": ", index.step, ", \"ranks\": ", index.ranks, ",\n\"kinds\": ", dump(index.kinds),
      ",\n\"parameters\": ", dump(parameters), ",\n\"texts\": ", dump(texts), ",\n\"files\": [");
  for (const StoredFile& file : index.files) {
    out += &file == index.files.data() ? "\n" : ",\n";
    out += dump(to_json(file));
  }
  out += ']';
  return concat(out, kTailBegin, hex_of(xxh3(out)), kTailEnd);
}

CheckpointIndex parse_index(std::string_view text, const std::string& path) {
  const auto body = text.substr(0, text.size() - std::min(text.size(), kTailBytes));
  if (text.size() <= kTailBytes ||
      text.substr(body.size()) != concat(kTailBegin, hex_of(xxh3(body)), kTailEnd))
    refuse(path, " is altered or cut short: its ", text.size(),
           " bytes do not end with their own checksum");
  try {
    return index_of(body);
  } catch (const UsageError& error) {
    refuse(path, " is not a valid checkpoint index: ", error.what());
  } catch (const json::exception&) {
    refuse(path, " is not a checkpoint index: its JSON does not have the expected structure");
  }
}

std::int64_t write_index(const std::string& folder, CheckpointIndex index,
                         const StateTexts& texts) {
  std::int64_t bytes = 0;
  const auto write = [&](std::string_view name, const std::string& contents) {
    write_text(concat(folder, '/', name), contents);
    bytes += std::ssize(contents);
  };
  for (const auto& [name, contents] : texts) {
    index.texts[name] = {std::ssize(contents), xxh3(contents)};
    write(name, contents);
  }
  write(kIndexName, to_text(index));
  return bytes;
}

void merge(CheckpointIndex& whole, CheckpointIndex part) {
  std::unordered_map<std::string, std::size_t> place;
  for (const StoredParameter& parameter : whole.parameters)
    place.emplace(parameter.name, place.size());
  std::vector<std::int64_t> place_of;
  for (StoredParameter& parameter : part.parameters) {
    const auto [found, added] = place.emplace(parameter.name, place.size());
    if (added) whole.parameters.push_back(parameter);
    AXONN_CHECK(whole.parameters[found->second] == parameter, "ranks disagree on the shape of ",
                parameter.name);
    place_of.push_back(static_cast<std::int64_t>(found->second));
  }
  if (whole.kinds.empty()) whole.kinds = part.kinds;
  AXONN_CHECK(part.kinds.empty() || whole.kinds == part.kinds,
              "ranks disagree on the kinds of buffers");
  for (StoredFile& file : part.files) {
    for (StoredBlock& block : file.blocks)
      for (StoredSlice& slice : block.slices) slice.parameter = place_of[slice.parameter];
    whole.files.push_back(std::move(file));
  }
}

}  // namespace axonn
