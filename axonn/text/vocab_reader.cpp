#include "axonn/text/vocab_reader.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "axonn/base/check.h"
#include "axonn/base/utf8.h"

namespace axonn {

namespace {

using Kind = JsonValue::Kind;

// Published files nest 7 deep. The limit keeps a damaged file from using memory for each bracket.
constexpr std::size_t kMostDepth = 32;

std::int64_t line_at(std::string_view text, std::size_t position) {
  const auto end = text.begin() + static_cast<std::ptrdiff_t>(std::min(position, text.size()));
  return 1 + std::count(text.begin(), end, '\n');
}

std::string shown(std::string_view text) { return printable(text.substr(0, 80)); }

/// Receives the parser's events: puts vocabulary and merges into tables, all else into a tree.
class Reader : public nlohmann::json_sax<nlohmann::json> {
 public:
  /// The place of the vocabulary: the root of the file, or "model".
  enum class Vocab { at_root, in_model };

  Reader(const MappedFile& file, Vocab place) : file_(file), place_(place) {}
  TokenizerTables tables;

  bool null() override { return value({}, "null"); }
  bool boolean(bool b) override { return value({.kind = Kind::boolean, .number = b}, "a boolean"); }
  bool number_float(double, const std::string&) override {
    return value({.kind = Kind::other_number}, "a fraction");
  }
  bool binary(binary_t&) override { return false; }

  bool string(std::string& text) override {
    if (table_ != Table::merges) return value({.kind = Kind::string, .text = text}, "a string");
    if (in_pair_) {
      pair_.push_back(text);
      return true;
    }
    const std::size_t space = text.find(' ');
    if (space == 0 || space == text.npos || space + 1 == text.size() ||
        text.find(' ', space + 1) != text.npos)
      refuse(merge_place(), ": wanted two tokens and a space between them, got '", shown(text),
             "'");
    tables.merges.push_back({text.substr(0, space), text.substr(space + 1)});
    return true;
  }

  bool number_integer(std::int64_t id) override {
    if (table_ != Table::vocab) return value({.kind = Kind::other_number}, "a number");
    refuse(file_.path(), ": the id of token '", shown(key_), "' is ", id,
           "; ids must not be negative");
  }

  bool number_unsigned(std::uint64_t id) override {
    if (table_ != Table::vocab) return value({.kind = Kind::number, .number = id}, "a number");
    if (id >= kMaxTokens)
      refuse(file_.path(), ": the id of token '", shown(key_), "' is ", id,
             "; at most 16,777,216 tokens are possible");
    if (!tables.ids.emplace(key_, static_cast<std::int32_t>(id)).second)
      refuse(file_.path(), ": token '", shown(key_), "' occurs twice");
    return true;
  }

  bool key(std::string& key) override {
    key_ = key;
    if (table_ == Table::none && open_.back()->members.contains(key))
      refuse(file_.path(), ": the key '", shown(key), "' occurs twice in one object");
    return true;
  }

  bool start_object(std::size_t) override {
    if (table_ == Table::none && vocab_begins()) {
      if (place_ == Vocab::in_model) add({});
      table_ = Table::vocab;
      return true;
    }
    return open(Kind::object, "an object");
  }

  bool end_object() override { return close(Table::vocab); }

  bool start_array(std::size_t) override {
    if (table_ == Table::merges) {
      if (in_pair_) refuse(merge_place(), ": wanted two tokens, got an array within an array");
      pair_.clear();
      return in_pair_ = true;
    }
    if (table_ == Table::none && in_model("merges")) {
      add({});
      table_ = Table::merges;
      return true;
    }
    return open(Kind::array, "an array");
  }

  bool end_array() override {
    if (!in_pair_) return close(Table::merges);
    if (pair_.size() != 2) refuse(merge_place(), ": wanted two tokens, got ", pair_.size());
    tables.merges.push_back({std::move(pair_[0]), std::move(pair_[1])});
    in_pair_ = false;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    refuse(file_.path(), ", line ", line_at(file_.text(), position), ", byte ", position,
           ": this is not JSON (", printable(error.what()), "); is the file whole?");
  }

 private:
  enum class Table { none, vocab, merges };

  bool vocab_begins() const { return place_ == Vocab::at_root ? open_.empty() : in_model("vocab"); }

  /// Whether the parser is at the value of this key in the root's "model".
  bool in_model(std::string_view key) const {
    return place_ == Vocab::in_model && open_.size() == 2 && key_ == key &&
           open_[1]->kind == Kind::object && open_[0]->members.contains("model") &&
           open_[1] == &open_[0]->members["model"];
  }

  std::string merge_place() const {
    return concat(file_.path(), ": model.merges[", tables.merges.size(), ']');
  }

  [[noreturn]] void refuse_value(const char* what) const {
    if (table_ == Table::merges)
      refuse(merge_place(), ": wanted \"left right\" or two tokens, got ", what);
    if (table_ == Table::vocab)
      refuse(file_.path(), ": the id of token '", shown(key_), "' is ", what, "; wanted a number");
    refuse(file_.path(), place_ == Vocab::at_root ? "" : ": model.vocab",
           ": wanted an object {\"token\": id, ...}, got ", what);
  }

  bool value(JsonValue v, const char* what) {
    if (table_ != Table::none || vocab_begins()) refuse_value(what);
    add(std::move(v));
    return true;
  }

  bool open(Kind kind, const char* what) {
    if (table_ != Table::none || vocab_begins()) refuse_value(what);
    if (open_.size() == kMostDepth)
      refuse(file_.path(), ": brackets nest deeper than ", kMostDepth);
    open_.push_back(add({.kind = kind}));
    return true;
  }

  bool close(Table table) {
    if (table_ == table) {
      table_ = Table::none;
    } else {
      open_.pop_back();
    }
    return true;
  }

  JsonValue* add(JsonValue v) {
    if (open_.empty()) return &(tables.rest = std::move(v));
    JsonValue& parent = *open_.back();
    if (parent.kind == Kind::object) return &(parent.members[key_] = std::move(v));
    return &parent.elements.emplace_back(std::move(v));
  }

  const MappedFile& file_;
  Vocab place_;
  std::vector<JsonValue*> open_;  // each within the one before
  std::string key_;               // the last key
  Table table_ = Table::none;
  bool in_pair_ = false;
  std::vector<std::string> pair_;
};

}  // namespace

TokenIds read_vocab_ids(const MappedFile& file) {
  Reader reader(file, Reader::Vocab::at_root);
  nlohmann::json::sax_parse(file.text().begin(), file.text().end(), &reader);
  return std::move(reader.tables.ids);
}

TokenizerTables read_tokenizer_tables(const MappedFile& file) {
  Reader reader(file, Reader::Vocab::in_model);
  nlohmann::json::sax_parse(file.text().begin(), file.text().end(), &reader);
  return std::move(reader.tables);
}

}  // namespace axonn
