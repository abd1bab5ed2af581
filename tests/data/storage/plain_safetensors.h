#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/support/temporary_path.h"

namespace axonn::test {

/// A tensor as stored in a file.
struct PlainTensor {
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::string bytes;
  bool operator==(const PlainTensor&) const = default;
};
using PlainTensors = std::map<std::string, PlainTensor>;

/// Reads a safetensors file by its published description alone, and checks all requirements: a
/// header padded to 8 bytes with "format": "pt", and data without gap, overlap or rest. Throws
/// std::runtime_error with the fault.
inline PlainTensors plain_safetensors(const std::string& path) {
  const auto need = [&](bool good, const std::string& what) {
    if (!good) throw std::runtime_error(path + ": " + what);
  };
  const std::string file = slurp(path);
  need(file.size() >= 8, "no length");
  std::uint64_t length = 0;
  for (int i = 7; i >= 0; --i) length = length << 8 | static_cast<unsigned char>(file[i]);
  need(length % 8 == 0 && length <= file.size() - 8, "a bad length");
  need(file[8] == '{', "the header does not begin with {");
  const auto header = nlohmann::json::parse(file.substr(8, length));
  need(header.at("__metadata__") == nlohmann::json{{"format", "pt"}}, "no format");
  const std::string data = file.substr(8 + length);
  std::multimap<std::size_t, std::size_t> ends;  // of each tensor's bytes, by where they begin
  PlainTensors tensors;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    need(entry.size() == 3, name + " has other keys");
    PlainTensor tensor{entry.at("dtype"), entry.at("shape"), {}};
    std::size_t bytes = tensor.dtype == "F32" ? 4 : tensor.dtype == "U8" ? 1 : 2;
    for (std::int64_t extent : tensor.shape) bytes *= static_cast<std::size_t>(extent);
    const std::size_t begin = entry.at("data_offsets").at(0), end = entry.at("data_offsets").at(1);
    need(begin <= end && end <= data.size() && end - begin == bytes, name + " has bad offsets");
    ends.emplace(begin, end);
    tensor.bytes = data.substr(begin, bytes);
    tensors[name] = tensor;
  }
  std::size_t covered = 0;
  for (const auto& [begin, end] : ends) {
    need(begin == covered || begin == end,
         begin < covered ? "tensors overlap" : "a hole in the data");
    covered = std::max(covered, end);
  }
  need(covered == data.size(), "a hole in the data");
  return tensors;
}

/// Reads the tensors of model.safetensors, or of the shards of an index, and checks the index's map
/// and total_size.
inline PlainTensors plain_folder(const std::string& folder) {
  const std::string index_path = folder + "/model.safetensors.index.json";
  if (!std::filesystem::exists(index_path)) return plain_safetensors(folder + "/model.safetensors");
  const auto index = nlohmann::json::parse(slurp(index_path));
  PlainTensors all;
  std::map<std::string, PlainTensors> files;
  std::size_t bytes = 0, in_files = 0;
  for (const auto& [name, file] : index.at("weight_map").items()) {
    if (!files.contains(file)) files[file] = plain_safetensors(folder + '/' + std::string(file));
    all[name] = files[file].at(name);
    bytes += all[name].bytes.size();
  }
  for (const auto& [name, tensors] : files) in_files += tensors.size();
  if (in_files != all.size())
    throw std::runtime_error("the shards hold tensors that the index does not list");
  if (index.at("metadata") != nlohmann::json{{"total_size", bytes}})
    throw std::runtime_error("total_size is not " + std::to_string(bytes));
  return all;
}

}  // namespace axonn::test
