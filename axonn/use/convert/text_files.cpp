#include "axonn/use/convert/text_files.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <iterator>
#include <optional>

#include <nlohmann/json.hpp>

#include "axonn/data/text/bpe/write_bpe.h"
#include "axonn/data/text/gguf_text.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/files.h"
#include "axonn/network/model/model_files.h"
#include "axonn/use/convert/gguf_model.h"

namespace axonn {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using Forms = std::vector<ChatFormat::Form>;

/// A JSON value as an expression of Jinja.
std::string expression(const Json& value) {
  if (value.is_null()) return "none";
  if (!value.is_structured()) return value.dump();
  std::string parts;
  for (const auto& [key, element] : value.items())
    parts += concat(parts.empty() ? "" : ", ", value.is_object() ? Json(key).dump() + ": " : "",
                    expression(element));
  return value.is_object() ? concat('{', parts, '}') : concat('[', parts, ']');
}

bool is_identifier(const std::string& name) {
  return !name.empty() && std::isdigit(static_cast<unsigned char>(name.front())) == 0 &&
         std::ranges::all_of(
             name, [](unsigned char c) { return c == '_' || (c < 0x80 && std::isalnum(c) != 0); });
}

/// The template with its arguments as defaults of variables.
std::string with_defaults(const std::string& form, const std::string& arguments) {
  const Json all = Json::parse(arguments, nullptr, false);
  if (!all.is_object()) return form;
  std::string defaults;
  for (const auto& [name, value] : all.items())
    if (name != kDateArgument && is_identifier(name))
      defaults += concat("{%- if ", name, " is not defined %}{%- set ", name, " = ",
                         expression(value), " %}{%- endif %}");
  // Renderers leave out the first line break after a tag, and may not the template's own.
  return defaults.empty() ? form : concat(defaults, '\n', form);
}

/// The chat template as other programs should read it: the model's own or, if it has none, that of
/// its tokenizer's folder.
Forms exported_forms(const ModelText& text) {
  Forms forms = text.forms.empty() ? chat_format_in(text.tokenizer).forms : text.forms;
  for (ChatFormat::Form& form : forms) form.text = with_defaults(form.text, text.arguments);
  return forms;
}

bool are_equal(const Forms& a, const Forms& b) {
  return std::ranges::equal(
      a, b, [](const auto& x, const auto& y) { return x.name == y.name && x.text == y.text; });
}

/// The tokens that end an assistant's turn in a model's own template; empty if it has none.
std::vector<std::int32_t> end_of_turn(const ModelText& text,
                                      const std::shared_ptr<const Tokenizer>& tokenizer) {
  try {
    const ChatFormat format = find_chat_format("auto", text);
    return ChatTemplate(tokenizer, format, parse_chat_arguments(text.arguments, "arguments"))
        .end_of_turn();
  } catch (const UsageError&) {  // a template that cannot be used here can be carried
    return {};
  }
}

void note_lost(const ModelText& text, const std::shared_ptr<const Tokenizer>& tokenizer,
               std::vector<std::string>& warnings) {
  if (text.forms.empty()) return;
  if (const auto end = end_of_turn(text, tokenizer); end.size() > 1)
    warnings.push_back(
        concat("the chat template ends an answer with the text ",
               Json(tokenizer->decode(end)).dump(-1, ' ', false, Json::error_handler_t::replace),
               ", which is no token of ", tokenizer->name(),
               "; give it to other programs as a text to stop at"));
}

/// The ends of an answer: those of the model, of its tokenizer's folder, or the end of a text.
std::vector<std::int32_t> exported_ends(const ModelText& text, const Tokenizer* tokenizer) {
  if (!text.ends.empty()) return text.ends;
  if (!tokenizer) return {};
  ModelText found = text_beside(text.tokenizer);
  if (const auto end = tokenizer->end_of_text(); end && found.ends.empty()) found.add_end(*end);
  return found.ends;
}

/// Writes the files that other programs read instead of vocab.json and merges.txt.
void write_tokenizer(const BpeVocab& vocab, const std::string& to) {
  write_text(to + "/tokenizer.json", to_tokenizer_json(vocab));
  if (const std::string path = to + "/tokenizer_config.json"; !fs::exists(path))
    write_text(path, to_tokenizer_config(vocab));
}

/// Writes the files of a tokenizer that was read from GGUF.
void write_tokenizer(const GgufTokenizer& tokenizer, const std::string& to) {
  write_text(to + "/tokenizer.json", tokenizer.json);
  Json config{{"tokenizer_class", "PreTrainedTokenizerFast"},
              {"add_bos_token", tokenizer.config.adds_begin.value_or(false)},
              {"clean_up_tokenization_spaces", false}};
  for (const auto& [key, token] : {std::pair{"bos_token", &tokenizer.config.begin_of_text},
                                   {"eos_token", &tokenizer.config.end_of_text}})
    if (!token->empty()) config[key] = *token;
  write_text(to + "/tokenizer_config.json", config.dump(2) + '\n');
}

void write_forms(const Forms& forms, const std::string& to) {
  for (const ChatFormat::Form& form : forms) {
    if (form.name == "default") {
      write_text(to + "/chat_template.jinja", form.text);
      continue;
    }
    if (form.name.empty() || form.name.find('/') != form.name.npos)
      refuse("the chat template '", form.name, "' of the model has a name that no file can have");
    fs::create_directories(to + '/' + kNamedTemplates);
    write_text(concat(to, '/', kNamedTemplates, '/', form.name, ".jinja"), form.text);
  }
}

/// Copies the files of a tokenizer's folder, without its chat template.
void copy_files(const fs::path& from, const std::string& to) {
  for (const std::string_view name : kTokenizerFiles) {
    if (!fs::exists(from / name) || name.starts_with("chat_template")) continue;
    std::string contents = read_text((from / name).string());
    if (name == "tokenizer_config.json")
      if (Json json = Json::parse(contents, nullptr, false); json.is_object())
        if (json.erase("chat_template") > 0) contents = json.dump(2) + '\n';
    write_text(concat(to, '/', name), contents);
  }
}

void copy_all_files(const fs::path& from, const std::string& to) {
  for (const std::string_view name : kTokenizerFiles)
    if (fs::exists(from / name))
      write_text(concat(to, '/', name), read_text((from / name).string()));
  if (fs::is_directory(from / kNamedTemplates))
    for (const auto& entry : fs::directory_iterator(from / kNamedTemplates)) {
      if (entry.path().extension() != ".jinja") continue;
      const std::string folder = to + '/' + kNamedTemplates;
      fs::create_directories(folder);
      write_text(folder + '/' + entry.path().filename().string(), read_text(entry.path().string()));
    }
}

void copy_tokenizer(const ModelText& text, const Forms& forms, const std::string& to) {
  if (text.tokenizer.empty()) return write_forms(forms, to);
  if (text.tokenizer == "bytes") {
    write_tokenizer(bytes_as_bpe(), to);
    return write_forms(forms, to);
  }
  if (is_gguf(text.tokenizer)) {
    write_tokenizer(read_gguf_tokenizer(GgufFile(text.tokenizer)), to);
    return write_forms(forms, to);
  }
  const fs::path from = tokenizer_folder(text.tokenizer);
  if (are_equal(forms, chat_format_in(text.tokenizer).forms)) {
    copy_all_files(from, to);
  } else {
    copy_files(from, to);
    write_forms(forms, to);
  }
  if (!fs::exists(from / "tokenizer.json") && fs::exists(from / "vocab.json"))
    write_tokenizer(read_bpe_vocab(from.string()), to);
}

/// Writes generation_config.json, or changes the one that was copied.
void write_generation(const HuggingFaceDetails& details, const std::string& to) {
  const std::string path = to + '/' + kGenerationConfig;
  if (!fs::exists(path)) return write_text(path, to_generation_config(details));
  const ModelText there = read_generation(path);  // refuses a damaged file
  if (std::ranges::equal(there.ends, details.ends) && (there.pad || !details.pad)) return;
  Json json = Json::parse(read_text(path));
  json.update(Json::parse(to_generation_config(details)));
  write_text(path, json.dump(2) + '\n');
}

}  // namespace

HuggingFaceDetails write_text_files(const ModelText& text, const std::string& to,
                                    std::vector<std::string>& warnings) {
  const bool named = !text.tokenizer.empty() && text.tokenizer != "bytes";
  if (named && !fs::exists(text.tokenizer))
    refuse("the tokenizer of this model, ", text.tokenizer,
           ", does not exist; name it with --tokenizer");
  const auto read = text.tokenizer.empty() ? nullptr : make_tokenizer(text.tokenizer);
  copy_tokenizer(text, exported_forms(text), to);
  HuggingFaceDetails details;
  // config.json has a place for one token; several are those of the tokenizer's files alone.
  if (read && named && read->begin_of_text().size() == 1)
    details.begin_of_text = read->begin_of_text().front();
  for (const std::int32_t end : exported_ends(text, read.get())) details.ends.push_back(end);
  details.pad = text.pad;
  write_generation(details, to);
  if (read) note_lost(text, read, warnings);
  return details;
}

GgufKeys gguf_text_keys(const ModelText& text, std::int64_t vocab,
                        std::vector<std::string>& warnings) {
  GgufKeys keys = gguf_tokenizer_keys(text.tokenizer, vocab);
  const auto read = std::shared_ptr<const Tokenizer>(make_tokenizer(text.tokenizer));
  std::vector<std::int32_t> ends = exported_ends(text, read.get());
  const auto take = [&](const char* key, std::optional<std::int32_t> token) {
    if (!token) return;
    std::erase(ends, *token);
    keys.emplace_back(key, static_cast<std::uint32_t>(*token));
  };
  const auto next = [&] { return ends.empty() ? std::nullopt : std::optional(ends.front()); };
  std::erase_if(ends, [&](std::int32_t token) { return token >= vocab; });
  const auto end = read->end_of_text();
  if (end)
    std::erase(ends, *end);  // gguf_tokenizer_keys() has written it
  else if (read->name() != "bytes")
    take("tokenizer.ggml.eos_token_id", next());
  const std::vector<std::int32_t> turn = end_of_turn(text, read);
  take("tokenizer.ggml.eot_token_id", turn.size() == 1 ? std::optional(turn.front()) : next());
  take("tokenizer.ggml.eom_token_id", next());
  if (!ends.empty())
    warnings.push_back(concat("the model has more than three ends of an answer, and GGUF no keys ",
                              "for the last ", ends.size(), " of them"));
  if (text.pad && *text.pad < vocab)
    keys.emplace_back("tokenizer.ggml.padding_token_id", static_cast<std::uint32_t>(*text.pad));
  std::vector<std::string> names;
  for (const ChatFormat::Form& form : exported_forms(text)) {
    if (form.name != "default") names.push_back(form.name);
    keys.emplace_back(
        concat("tokenizer.chat_template", form.name == "default" ? "" : '.' + form.name),
        form.text);
  }
  if (!names.empty()) keys.emplace_back("tokenizer.chat_templates", std::move(names));
  note_lost(text, read, warnings);
  std::ranges::copy(read->notes(), std::back_inserter(warnings));
  return keys;
}

}  // namespace axonn
