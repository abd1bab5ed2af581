#include "axonn/storage/safetensors/safetensors_folder.h"

#include <string_view>
#include <unordered_map>

#include <nlohmann/json.hpp>

#include "axonn/base/files.h"

namespace axonn {

namespace {

std::string one_file(const std::string& stem) { return stem + ".safetensors"; }
std::string index_of(const std::string& stem) { return stem + ".safetensors.index.json"; }
constexpr std::int64_t kMostShardIndexBytes = 100'000'000;  // as for a file's own header

/// Reads the map from tensors to files in the index, from the parser's events, so that memory stays
/// in proportion to the text.
class IndexReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::map<std::string, std::string> files;
  std::string fault;

  bool null() override { return scalar(); }
  bool boolean(bool) override { return scalar(); }
  bool number_integer(std::int64_t) override { return scalar(); }
  bool number_unsigned(std::uint64_t) override { return scalar(); }
  bool number_float(double, const std::string&) override { return scalar(); }
  bool binary(nlohmann::json::binary_t&) override { return scalar(); }
  bool string(std::string& value) override {
    if (in_map()) files[key_] = value;
    return true;
  }
  bool start_object(std::size_t) override { return in_map() ? scalar() : enter(); }
  bool end_object() override { return leave(); }
  bool start_array(std::size_t) override { return in_map() ? scalar() : enter(); }
  bool end_array() override { return leave(); }
  bool key(std::string& key) override {
    if (in_map() && files.contains(key)) fault = concat("the tensor \"", key, "\" comes twice");
    if (depth_ == 1) section_ = key;
    key_ = key;
    return fault.empty();
  }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    fault = concat("invalid JSON from byte ", position, " on");
    return false;
  }

 private:
  bool in_map() const { return depth_ == 2 && section_ == "weight_map"; }
  bool enter() {
    ++depth_;
    return true;
  }
  bool leave() {
    --depth_;
    return true;
  }
  bool scalar() {
    if (in_map()) fault = concat("weight_map has no file name for \"", key_, '"');
    return fault.empty();
  }

  int depth_ = 0;
  std::string section_, key_;
};

}  // namespace

SafetensorsFolder::SafetensorsFolder(std::string path, const std::string& stem)
    : path_(std::move(path)) {
  if (!is_folder(path_)) refuse(path_, " is not a folder");
  const std::string file = path_ + '/' + one_file(stem), index = path_ + '/' + index_of(stem);
  if (path_exists(index)) {
    open_shards(index);
    return;
  }
  if (!path_exists(file))
    refuse(path_, " has neither ", one_file(stem), " nor ", index_of(stem),
           "; save it as safetensors (.bin weights cannot be read)");
  files_.push_back(std::make_unique<SafetensorsFile>(file));
  for (const SafetensorsEntry& entry : files_.front()->header().entries)
    tensors_[entry.name] = {files_.front().get(), &entry};
}

void SafetensorsFolder::open_shards(const std::string& index) {
  IndexReader reader;
  const std::string text = read_text(index, kMostShardIndexBytes);
  const bool whole = text.find('\0') == text.npos && nlohmann::json::sax_parse(text, &reader);
  if (!whole) refuse(index, ": ", reader.fault.empty() ? "it contains a zero byte" : reader.fault);
  if (reader.files.empty()) refuse(index, " has no weight_map, or an empty one");
  struct Shard {
    const SafetensorsFile* file = nullptr;
    std::unordered_map<std::string_view, const SafetensorsEntry*> entries = {};
  };
  std::map<std::string, Shard> opened;
  for (const auto& [tensor, name] : reader.files) {
    if (name.find('/') != name.npos || name.empty())
      refuse(index, ": \"", name, "\", listed as the file of ", tensor, ", is not a file name");
    Shard& shard = opened[name];
    if (!shard.file) {
      files_.push_back(std::make_unique<SafetensorsFile>(path_ + '/' + name));
      shard.file = files_.back().get();
      for (const SafetensorsEntry& entry : shard.file->header().entries)
        shard.entries.emplace(entry.name, &entry);
    }
    const auto entry = shard.entries.find(tensor);
    if (entry == shard.entries.end())
      refuse(index, " says that ", name, " holds ", tensor, ", but it does not");
    tensors_[tensor] = {shard.file, entry->second};
  }
}

SafetensorsFolder::Tensor SafetensorsFolder::find(std::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? Tensor{} : found->second;
}

std::int64_t SafetensorsFolder::bytes() const {
  std::int64_t sum = 0;
  for (const auto& [name, tensor] : tensors_) sum += tensor.entry->bytes();
  return sum;
}

}  // namespace axonn
