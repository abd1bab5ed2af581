// chat_renderer FILE: renders conversations by a chat template and encodes them, for compare.py.
//
// The first line of the file is an object: "template", the text in Jinja; "tokens", its variables;
// "control", the characters of the tokenizer's special tokens; and "day", for strftime_now. Each
// further line is a conversation, as in data sets. For each it prints a line with an object:
//
//   all, prompt   the text, and that up to the assistant's next message; null if it is refused
//   why           of the last refusal
//   fitted        the text of the conversation as it is learned: parts as the template reads them
//   learned       the text of all tokens, as a list of pieces: not learned, learned, not learned,
//   ... control       the special tokens among them; absent if the conversation cannot be learned
#include <fstream>
#include <iostream>
#include <map>

#include <nlohmann/json.hpp>

#include "axonn/data/text/chat/chat_template.h"
#include "axonn/foundation/base/check.h"

#include "tests/data/text/tokenizer_files.h"

using namespace axonn;
using nlohmann::json;

namespace {

std::shared_ptr<const Tokenizer> tokenizer_with(const json& control) {
  json all = json::parse(test::llama3_json());
  json& added = all["added_tokens"];
  int id = added.back()["id"];
  for (json& token : added) token["content"] = concat("<|unused ", token["id"].get<int>(), "|>");
  for (const json& content : control) {
    json token = added.back();
    token.update({{"id", ++id}, {"content", content}, {"special", true}});
    added.push_back(token);
  }
  const test::TempFolder folder;
  folder.file("tokenizer.json", all.dump());
  return make_tokenizer(folder.path());
}

void encode(const ChatTemplate& chat, const Tokenizer& tokenizer, const Conversation& talk,
            json& to) {
  const ChatTemplate::Rendered rendered = chat.render(talk);
  std::vector<std::string> pieces(1);
  json control = json::array();
  for (std::size_t i = 0; i < rendered.tokens.size(); ++i) {
    const std::int32_t token = rendered.tokens[i];
    if (rendered.learned[i] != (pieces.size() % 2 == 0)) pieces.emplace_back();
    pieces.back() += tokenizer.bytes_of(token);
    if (tokenizer.is_special(token)) control.push_back(tokenizer.bytes_of(token));
  }
  to["learned"] = pieces;
  to["control"] = control;
}

json render(const ChatTemplate& chat, const Tokenizer& tokenizer, const std::string& line) {
  json out;
  const auto attempt = [&](const auto& what) {
    try {
      what();
    } catch (const UsageError& error) {
      out["why"] = error.what();
    }
  };
  attempt([&] {
    const Conversation talk = Conversation::parse(*parse_chat_json(line)->dict(), "conversation");
    attempt([&] { encode(chat, tokenizer, talk, out); });
    attempt([&] { out["fitted"] = chat.text(chat.fit_to_template(talk), false).bytes(); });
    attempt([&] { out["prompt"] = chat.text(talk, true).bytes(); });
    attempt([&] { out["all"] = chat.text(talk, false).bytes(); });
  });
  return out;
}

}  // namespace

int main(int, char** arguments) {
  std::ifstream file(arguments[1]);
  std::string line;
  std::getline(file, line);
  const json head = json::parse(line);
  const auto tokenizer = tokenizer_with(head["control"]);
  try {
    const std::map<std::string, std::string> tokens = head["tokens"];
    const ChatTemplate chat(tokenizer,
                            {.forms = {{"default", "template", head["template"]}},
                             .tokens = {tokens.begin(), tokens.end()}},
                            {.variables = {}, .now = parse_chat_date(head["day"], "day")});
    while (std::getline(file, line))
      std::cout
          << render(chat, *tokenizer, line).dump(-1, ' ', false, json::error_handler_t::replace)
          << '\n';
  } catch (const UsageError& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
