#include "axonn/cli/prompts.h"

#include <fstream>
#include <iostream>
#include <iterator>

#include <nlohmann/json.hpp>

#include "axonn/base/check.h"
#include "axonn/train/launch.h"

namespace axonn {

namespace {

std::string prompt_of(const std::string& line, const std::string& place) {
  const auto object = nlohmann::json::parse(line, nullptr, false);
  if (!object.is_object())
    refuse(place, ": no JSON object; each line of a .jsonl file must be one");
  for (const char* key : {"prompt", "text"})
    if (const auto found = object.find(key); found != object.end() && found->is_string())
      return found->get<std::string>();
  refuse(place, ": neither \"prompt\" nor \"text\" is a string");
}

}  // namespace

std::vector<std::string> read_prompts(std::vector<std::string> texts, const std::string& file) {
  for (std::string& text : texts)
    if (text == "-")  // a launcher passes standard input to its first process only
      text = speaks_for_all() ? std::string(std::istreambuf_iterator<char>(std::cin), {}) : "";
  if (file.empty()) return texts;
  std::ifstream in(file);
  if (!in) refuse("cannot read ", file);
  int number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.empty()) continue;
    texts.push_back(file.ends_with(".jsonl") ? prompt_of(line, concat(file, ':', number)) : line);
  }
  if (in.bad()) refuse("cannot read ", file);
  if (number == 0) refuse(file, " has no prompts");
  return texts;
}

}  // namespace axonn
