#include "axonn/run/records/matmul_choices.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/files.h"
#include "axonn/ranks/comm/texts.h"

namespace axonn {

namespace {

using Json = nlohmann::ordered_json;

Json json_of(const MatmulChoices& choices) {
  Json products = Json::array();
  for (const TunedMatmul& p : choices.products)
    products.push_back({{"product", to_string(p.shape)},
                        {"way", p.way},
                        {"seconds", p.seconds},
                        {"default_way", p.default_way},
                        {"default_seconds", p.default_seconds},
                        {"gain", p.gain()},
                        {"calls", p.calls}});
  return {{"device", choices.device}, {"products", products}};
}

MatmulChoices choices_of(const Json& json) {
  MatmulChoices choices{.device = json.at("device"), .products = {}};
  for (const Json& entry : json.at("products")) {
    const std::string text = entry.at("product");
    const auto shape = parse_matmul_shape(text);
    if (!shape) refuse("'", text, "' is not a matrix product");
    choices.products.push_back({.shape = *shape,
                                .way = entry.at("way"),
                                .default_way = entry.at("default_way"),
                                .seconds = entry.at("seconds"),
                                .default_seconds = entry.at("default_seconds"),
                                .calls = entry.at("calls")});
  }
  return choices;
}

/// Calls f with the parsed text. Throws UsageError that names the file.
template <typename F>
auto with_json(std::string_view text, const std::string& name, F f) {
  try {
    return f(Json::parse(text));
  } catch (const std::exception& error) {
    refuse(name, " does not hold choices of products: ", error.what());
  }
}

}  // namespace

const TunedMatmul* MatmulChoices::find(const MatmulShape& shape) const {
  const auto found = std::ranges::find(products, shape, &TunedMatmul::shape);
  return found == products.end() ? nullptr : &*found;
}

std::string to_json(const MatmulChoices& choices) { return json_of(choices).dump(2) + "\n"; }

MatmulChoices parse_matmul_choices(std::string_view json, const std::string& name) {
  return with_json(json, name, choices_of);
}

std::string to_text(const MatmulChoices& choices) {
  const auto ms = [](double seconds) { return fmt::format("{:.3f}", seconds * 1e3); };
  std::string text = fmt::format("{}\n\n{:<44}{:>6}  {:<18}{:>9}{:>11}{:>7}  {}\n", choices.device,
                                 "product", "calls", "default", "ms", "chosen: ms", "gain", "way");
  double before = 0, after = 0;  // of the products with known calls
  for (const TunedMatmul& p : choices.products) {
    text += fmt::format("{:<44}{:>6}  {:<18}{:>9}{:>11}{:>7.2f}  {}\n", to_string(p.shape), p.calls,
                        p.default_way, ms(p.default_seconds), ms(p.seconds), p.gain(),
                        p.way == p.default_way ? "the same" : p.way);
    before += p.calls * p.default_seconds;
    after += p.calls * p.seconds;
  }
  if (after > 0)
    text += fmt::format("\nall products: {} ms by default, {} ms as chosen: {:.3f} times as fast\n",
                        ms(before), ms(after), before / after);
  return text;
}

MatmulCache::MatmulCache(std::string path) : path_(std::move(path)) { devices_ = read(); }

std::map<std::string, MatmulChoices> MatmulCache::read() {
  if (path_.empty() || !path_exists(path_)) return {};
  std::map<std::string, MatmulChoices> devices;
  const std::string fault = fault_of([&] {
    with_json(read_text(path_), path_, [&](const Json& json) {
      for (const Json& entry : json.at("devices"))
        devices.insert_or_assign(entry.at("device").get<std::string>(), choices_of(entry));
    });
  });
  if (fault.empty()) return devices;
  warning_ = "earlier tuning results are ignored, and the file is written anew: " + fault;
  return {};
}

const TunedMatmul* MatmulCache::find(const std::string& device, const MatmulShape& shape) const {
  const auto found = devices_.find(device);
  return found == devices_.end() ? nullptr : found->second.find(shape);
}

void MatmulCache::keep(const MatmulChoices& choices) {
  if (path_.empty()) return;
  devices_ = read();  // includes what other runs wrote meanwhile
  MatmulChoices& here = devices_[choices.device];
  here.device = choices.device;
  for (const TunedMatmul& product : choices.products) {
    std::erase_if(here.products,
                  [&](const TunedMatmul& old) { return old.shape == product.shape; });
    here.products.push_back(product);
  }
  Json all = Json::array();
  for (const auto& [device, known] : devices_) all.push_back(json_of(known));
  const std::string fault = fault_of([&] {
    const auto folder = std::filesystem::path(path_).parent_path();
    if (!folder.empty()) make_folders(folder);
    write_file_atomically(path_, Json{{"devices", all}}.dump(1) + "\n");
  });
  if (!fault.empty()) warning_ = "tuning results are not kept: " + fault;
}

std::string matmul_cache_path(const std::string& configured) {
  if (!configured.empty()) return configured;
  const auto value = [](const char* name) {
    const char* text = std::getenv(name);
    return std::string(text ? text : "");
  };
  if (const std::string cache = value("XDG_CACHE_HOME"); !cache.empty())
    return cache + "/axonn/products.json";
  if (const std::string home = value("HOME"); !home.empty())
    return home + "/.cache/axonn/products.json";
  return {};
}

}  // namespace axonn
