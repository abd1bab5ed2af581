#include "axonn/data/text/chat/chat_template.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include "axonn/data/text/chat/named_templates.h"
#include "axonn/data/text/chat/turns.h"
#include "axonn/data/text/gguf_text.h"
#include "axonn/data/text/jinja/jinja_parser.h"
#include "axonn/data/text/jinja/jinja_print.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/files.h"
#include "axonn/foundation/base/json_node.h"
#include "axonn/foundation/base/random.h"
#include "axonn/foundation/base/utf8.h"

namespace axonn {

namespace fs = std::filesystem;

namespace {

using jinja::Origin;
using jinja::Text;

constexpr std::array<std::string_view, 5> kUsualRoles{"system", "user", "assistant", "tool",
                                                      "developer"};
constexpr int kRenderingVersion = 6;  // raise it when the same conversations give other tokens

/// The templates in a JSON value: a text, or a list of {"name", "template"}.
std::vector<ChatFormat::Form> forms_in(const JsonNode& node, const std::string& file) {
  if (!node.is_array()) return {{"default", file, node.text()}};
  std::vector<ChatFormat::Form> forms;
  for (const JsonNode& each : node.items())
    forms.push_back({each["name"].text_or(""), file, each["template"].text()});
  if (std::ranges::find(forms, "default", &ChatFormat::Form::name) == forms.end())
    node.reject("wanted a string, or a list with an entry named \"default\"");
  return forms;
}

/// The variables for tokens in a tokenizer's folder: "bos_token" and others.
void find_token_variables(const JsonNode& config, ChatFormat& format) {
  for (const auto& [name, node] : config.members()) {
    if (!name.ends_with("_token") || name.starts_with("add_")) continue;
    if (node.is_text())
      format.tokens.emplace_back(name, node.text());
    else if (node.is_object() && node["content"].is_text())
      format.tokens.emplace_back(name, node["content"].text());
  }
}

bool has_form(const ChatFormat& format, std::string_view name) {
  return std::ranges::find(format.forms, name, &ChatFormat::Form::name) != format.forms.end();
}

/// Adds the templates of files in kNamedTemplates, which take the place of others of their names.
void find_named_forms(const std::string& folder, ChatFormat& format) {
  const fs::path named = fs::path(folder) / kNamedTemplates;
  if (!is_folder(named.string())) return;
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(named))
    if (entry.path().extension() == ".jinja") files.push_back(entry.path());
  std::ranges::sort(files);
  for (const fs::path& file : files) {
    const std::string name = file.stem().string();
    if (name == "default" && has_form(format, name)) continue;  // chat_template.jinja
    std::erase_if(format.forms, [&](const ChatFormat::Form& form) { return form.name == name; });
    format.forms.push_back({name, file.string(), read_text(file.string())});
  }
}

/// transformers does not read the templates of tokenizer_config.json where there are files.
ChatFormat format_of_folder(const std::string& folder) {
  const std::string jinja = folder + "/chat_template.jinja",
                    config = folder + "/tokenizer_config.json";
  ChatFormat format;
  if (path_exists(jinja)) format.forms = {{"default", jinja, read_text(jinja)}};
  find_named_forms(folder, format);
  if (!path_exists(config)) return format;
  const TextFile file(config);
  const JsonNode node = JsonNode::parse(file.text(), config);
  find_token_variables(node, format);
  if (const JsonNode found = node["chat_template"]; format.forms.empty() && !found.is_null())
    format.forms = forms_in(found, config + ": chat_template");
  return format;
}

/// Joins the pieces of a template's and an assistant's words that may hold added tokens.
class TextEncoder {
 public:
  using Finders = std::pair<const AddedTokenFinder&, const AddedTokenFinder&>;

  /// `finders`: of the template's words, and of the assistant's.
  TextEncoder(const Tokenizer& tokenizer, Finders finders, const std::vector<std::string>& roles,
              std::string_view bytes)
      : tokenizer_(tokenizer), finders_(finders), roles_(roles), bytes_(bytes) {}

  /// Appends the tokens of bytes [begin, end), which have one answer to whether they are learned.
  void encode(const Text& text, ByteSpan span, bool learned, ChatTemplate::Rendered& to) {
    plain_ = span.begin;
    const AddedTokenFinder* finder = nullptr;  // of the bytes from `run` on
    std::size_t run = span.begin, at = 0;
    text.for_pieces([&](std::string_view piece, Origin origin) {
      const std::size_t begin = std::clamp(at, span.begin, span.end);
      at += piece.size();
      if (piece.empty() || begin == span.end || at <= span.begin) return;
      const AddedTokenFinder* own = finder_of(origin);
      if (own == finder) return;
      find_tokens(finder, {run, begin}, to.tokens);
      finder = own;
      run = begin;
    });
    find_tokens(finder, {run, span.end}, to.tokens);
    encode_plain(span.end, to.tokens);
    to.learned.resize(to.tokens.size(), learned);
  }

 private:
  const AddedTokenFinder* finder_of(Origin origin) const {
    if (origin.source == Origin::kTemplate) return &finders_.first;
    const bool assistant =
        origin.source >= 0 && roles_[static_cast<std::size_t>(origin.source)] == "assistant";
    return assistant ? &finders_.second : nullptr;
  }

  void find_tokens(const AddedTokenFinder* finder, ByteSpan run, std::vector<std::int32_t>& to) {
    while (finder && run.begin < run.end) {
      const auto match = finder->find(bytes_.substr(run.begin, run.end - run.begin));
      if (!match) return;
      encode_plain(run.begin + match->begin, to);
      to.push_back(match->token);
      run.begin = plain_ = run.begin + match->begin + match->bytes;
      before_ = Before::added_token;
    }
  }

  /// Encodes what is left up to `end` as plain text.
  void encode_plain(std::size_t end, std::vector<std::int32_t>& to) {
    if (plain_ == end) return;
    tokenizer_.encode_into(bytes_.substr(plain_, end - plain_), to,
                           {.added_tokens = false,
                            .continues = before_ == Before::text,
                            .after_token = before_ == Before::added_token});
    plain_ = end;
    before_ = Before::text;
  }

  const Tokenizer& tokenizer_;
  const Finders finders_;
  const std::vector<std::string>& roles_;
  const std::string_view bytes_;
  std::size_t plain_ = 0;  // the first byte that is not encoded
  Before before_ = Before::nothing;
};

std::vector<std::string> roles_of(const Conversation& conversation) {
  std::vector<std::string> roles;
  for (std::size_t i = 0; i < conversation.messages.size(); ++i)
    roles.push_back(conversation.text(i, "role"));
  return roles;
}

}  // namespace

ChatFormat chat_format_in(const std::string& tokenizer) {
  if (tokenizer.empty()) return {};
  if (tokenizer == "bytes") return find_chat_format("chatml", tokenizer);
  if (is_gguf(tokenizer)) return {.forms = read_gguf_text(GgufFile(tokenizer)).forms};
  return format_of_folder(tokenizer_folder(tokenizer));
}

ChatFormat find_chat_format(const std::string& name, const std::string& tokenizer) {
  if (const NamedTemplate* found = find_named_template(name))
    return {.forms = {{"default", concat("(chat template ", name, ')'), std::string(found->text)}},
            .needed_tokens = found->needed_tokens};
  ChatFormat format = chat_format_in(tokenizer);
  if (name.ends_with(".jinja")) {
    format.forms = {{"default", name, read_text(name)}};
    return format;
  }
  if (name != "auto")
    refuse("data.chat_template = \"", printable(name),
           "\" is unknown; use auto, a .jinja file, or ", "one of ", kChatTemplates);
  if (!has_form(format, "default"))
    refuse(tokenizer, " has no chat template (chat_template.jinja, or chat_template in ",
           "tokenizer_config.json); name one in data.chat_template: ", kChatTemplates);
  return format;
}

ChatTemplate::ChatTemplate(std::shared_ptr<const Tokenizer> tokenizer, ChatFormat format,
                           ChatArguments arguments)
    : tokenizer_(std::move(tokenizer)),
      now_(arguments.now),
      last_turn_only_(arguments.last_turn_only) {
  std::string all = std::to_string(kRenderingVersion);
  for (const std::string& token : format.needed_tokens)
    if (!tokenizer_->added_token(token))
      refuse("the tokenizer ", tokenizer_->name(), " has no token ", token,
             ", which data.chat_template needs; choose another template (", kChatTemplates,
             "), or the model's own tokenizer");
  for (const ChatFormat::Form& form : format.forms) {
    forms_.push_back({form.name, form.text, jinja::parse(form.text, form.file)});
    all += concat('|', form.name, '|', form.text);
  }
  for (const auto& [name, token] : format.tokens) variables_.emplace_back(name, token);
  const std::vector<std::int32_t>& begin = tokenizer_->begin_of_text();
  for (const auto& [name, token] :
       {std::pair{"bos_token", begin.size() == 1 ? std::optional(begin[0]) : std::nullopt},
        std::pair{"eos_token", tokenizer_->end_of_text()}})
    if (token && std::ranges::find(format.tokens, name, [](const auto& v) {
                   return std::string_view(v.first);
                 }) == format.tokens.end())
      variables_.emplace_back(name, tokenizer_->bytes_of(*token));
  // Later ones count.
  variables_.insert(variables_.end(), arguments.variables.begin(), arguments.variables.end());
  for (const auto& [name, value] : variables_)
    all += concat('|', name, '=', jinja::to_text(value).bytes());
  if (now_) all += concat('|', now_->tm_year, '-', now_->tm_yday);
  if (last_turn_only_) all += "|last turn only";
  fingerprint_ = std::to_string(hash_text(all));
  for (const auto& [content, token] : tokenizer_->added_tokens()) {
    all_tokens_.add(content, token);
    if (!tokenizer_->is_special(token)) plain_tokens_.add(content, token);
  }
  find_content_forms();
  find_end_of_turn();
}

const ChatTemplate::Form& ChatTemplate::form_for(bool tools) const {
  const auto find = [&](const char* name) { return std::ranges::find(forms_, name, &Form::name); };
  if (tools && find("tool_use") != forms_.end()) return *find("tool_use");
  return *find("default");
}

const ChatTemplate::Form& ChatTemplate::form_for(const Conversation& conversation) const {
  return form_for(std::ranges::any_of(
      conversation.variables, [](const auto& variable) { return variable.first == "tools"; }));
}

bool ChatTemplate::mentions(std::string_view word) const {
  return std::ranges::any_of(
      forms_, [&](const Form& form) { return form.source.find(word) != std::string::npos; });
}

void ChatTemplate::find_content_forms() {
  for (Form& form : forms_) {
    const bool tools = form.name == "tool_use";
    const auto rendered = [&](const Conversation& conversation) {
      std::optional<std::string> found;
      try {
        Conversation probe = conversation;
        if (tools) probe.variables.emplace_back("tools", jinja::List{});
        found = text(probe, false).bytes();
      } catch (const UsageError&) {  // it may not know the role
      }
      return found;
    };
    for (const std::string_view role : kUsualRoles)
      form.contents[std::string(role)] = find_content_form(role, rendered);
    form.arguments = find_arguments_form(rendered);
  }
}

Conversation ChatTemplate::fit_to_template(Conversation conversation) const {
  const Form& form = form_for(conversation);
  const bool knows_developer = form.source.find("developer") != std::string::npos;
  for (std::size_t i = 0; i < conversation.messages.size(); ++i) {
    if (!knows_developer && conversation.text(i, "role") == "developer")
      conversation.set_member(i, "role", Text("system"));
    const Origin origin{.source = static_cast<std::int32_t>(i)};
    const jinja::Value* calls = conversation.messages[i].dict()->find("tool_calls");
    if (calls && calls->list())
      conversation.set_member(i, "tool_calls", calls_in(form.arguments, *calls->list(), origin));
    const jinja::Value* content = conversation.messages[i].dict()->find("content");
    if (!content) continue;
    const auto found = form.contents.find(conversation.text(i, "role"));
    const ContentForm wanted =
        found == form.contents.end() ? form.contents.at("user") : found->second;
    const bool fits = content->text() ? wanted != ContentForm::parts : !is_text_parts(*content);
    if (!fits) conversation.set_member(i, "content", content_in(wanted, *content, origin));
  }
  return conversation;
}

Text ChatTemplate::text_of_first(const Conversation& conversation, std::size_t count,
                                 bool prompted) const {
  jinja::Variables variables = variables_;
  variables.emplace_back("tools", jinja::None{});
  variables.emplace_back("documents", jinja::None{});
  variables.insert(variables.end(), conversation.variables.begin(), conversation.variables.end());
  const auto first = conversation.messages.begin();
  variables.emplace_back("messages",
                         jinja::List{.items = {first, first + static_cast<std::ptrdiff_t>(count)}});
  variables.emplace_back("add_generation_prompt", prompted);
  const std::optional<std::tm>& now = now_ ? now_ : conversation.now;
  jinja::RenderOptions options{.now = now ? &*now : nullptr};
  options.most_steps += 16 * static_cast<std::int64_t>(conversation.bytes);
  return jinja::render(form_for(conversation).program, variables, options);
}

Text ChatTemplate::text(const Conversation& conversation, bool prompted) const {
  return text_of_first(conversation, conversation.messages.size(), prompted);
}

/// By conversations that differ from this one in their messages alone.
std::string ChatTemplate::closing_prompt_for(const Conversation& conversation) const {
  if (form_for(conversation).program.uses("add_generation_prompt")) return "";
  const auto render_questions = [&](std::size_t times) {
    Conversation probe = fit_to_template(Conversation(std::vector<Message>(times, {"user", "Hi"})));
    probe.variables = conversation.variables;
    std::optional<Text> found;
    try {
      found = text(probe, false);
    } catch (const UsageError&) {  // users may have to take turns with the assistant
    }
    return found;
  };
  const std::optional<Text> once = render_questions(1);
  return once ? closing_prompt(*once, render_questions(2), all_tokens_) : "";
}

void ChatTemplate::check(const Conversation& conversation, bool prompted) const {
  if (conversation.messages.empty()) refuse("the conversation has no messages");
  const std::vector<std::string> roles = roles_of(conversation);
  const std::vector<std::string>& literals = form_for(conversation).program.literals;
  for (std::size_t i = 0; i < roles.size(); ++i)
    if (std::ranges::find(kUsualRoles, roles[i]) == kUsualRoles.end() &&
        !std::ranges::binary_search(literals, roles[i]))
      refuse("message ", i + 1, " has the role '", printable(roles[i].substr(0, 80)),
             "', which the chat template does not know; roles are system, user, assistant, ",
             "tool, developer, and those that the template names");
  if (prompted && roles.back() == "assistant")
    refuse("the last message is the assistant's; it must be the user's");
  if (!prompted && std::ranges::find(roles, "assistant") == roles.end())
    refuse("no message is the assistant's, so there is nothing to learn");
}

ChatTemplate::Rendered ChatTemplate::encode(const Conversation& given, bool prompted,
                                            const std::string& location) const {
  const auto with_location = [&](const auto& parts) {
    refuse(location, location.empty() ? "" : ": ", parts);
  };
  try {
    check(given, prompted);
    const Conversation conversation = fit_to_template(given);
    const Text whole = text(conversation, prompted);
    const std::vector<std::string> roles = roles_of(conversation);
    const PartialRenderings renderings{
        [&](std::size_t count, bool with_prompt) {
          std::optional<Text> first;
          try {
            first = text_of_first(conversation, count, with_prompt);
          } catch (const UsageError&) {  // a template may want more messages
          }
          return first;
        },
        closing_prompt_for(conversation)};
    const auto end = tokenizer_->end_of_text();
    std::vector<ByteSpan> spans =
        learned_spans(whole, roles, renderings, all_tokens_,
                      end ? tokenizer_->bytes_of(*end) : std::string_view());
    if (!conversation.not_learned.empty())
      spans = spans_without(whole, roles, std::move(spans), conversation.not_learned);
    if (last_turn_only_) spans = spans_of_last_turn(whole, roles, std::move(spans));
    TextEncoder encoder(*tokenizer_, {all_tokens_, plain_tokens_}, roles, whole.bytes());
    Rendered out;
    std::size_t at = 0;
    for (const ByteSpan& span : spans) {
      encoder.encode(whole, {at, span.begin}, false, out);
      encoder.encode(whole, span, true, out);
      at = span.end;
    }
    encoder.encode(whole, {at, whole.size()}, false, out);
    return out;
  } catch (const jinja::RaisedException& error) {
    with_location(concat("the chat template refuses this conversation: ", error.what()));
  } catch (const UsageError& error) {
    with_location(error.what());
  }
  return {};
}

ChatTemplate::Rendered ChatTemplate::render(const Conversation& conversation,
                                            const std::string& location) const {
  return encode(conversation, false, location);
}

std::vector<std::int32_t> ChatTemplate::prompt(const Conversation& conversation,
                                               const std::string& location) const {
  return encode(conversation, true, location).tokens;
}

std::vector<std::int32_t> ChatTemplate::begun(const Conversation& given) const {
  if (given.messages.empty()) refuse("the conversation has no messages");
  const std::size_t last = given.messages.size() - 1;
  const std::string content(jinja::strip(given.text(last, "content"), Strip::both, nullptr));
  if (given.text(last, "role") != "assistant" || content.empty() ||
      given.messages[last].dict()->find("tool_calls"))
    refuse("the last message, which the answer goes on with, must be a text of the assistant");
  check(given, false);
  Rendered out;
  try {
    const Conversation conversation = fit_to_template(given);
    const Text whole = text(conversation, false);
    std::size_t at = 0, end = 0;
    whole.for_pieces([&](std::string_view piece, Origin origin) {
      at += piece.size();
      if (origin.source == static_cast<std::int32_t>(last) && !piece.empty()) end = at;
    });
    const std::string_view before = std::string_view(whole.bytes()).substr(0, end);
    if (!jinja::strip(before, Strip::right, nullptr).ends_with(content))
      refuse("the chat template does not write the last message as it is");
    const std::vector<std::string> roles = roles_of(conversation);
    TextEncoder(*tokenizer_, {all_tokens_, plain_tokens_}, roles, whole.bytes())
        .encode(whole, {0, end}, false, out);
  } catch (const jinja::RaisedException& error) {
    refuse("the chat template refuses this conversation: ", error.what());
  }
  return out.tokens;
}

bool ChatTemplate::teaches_end() const {
  constexpr std::string_view kWord = "Yes";
  Conversation probe({{"user", "Hi"}, {"assistant", std::string(kWord)}});
  probe.now = parse_chat_date("2024-07-26", "");  // any day
  try {
    const Rendered rendered = render(probe);
    std::vector<std::int32_t> learned;
    for (std::size_t i = 0; i < rendered.tokens.size(); ++i)
      if (rendered.learned[i]) learned.push_back(rendered.tokens[i]);
    const std::string text = tokenizer_->decode(learned);
    return !jinja::strip(text, Strip::right, nullptr).ends_with(kWord);
  } catch (const UsageError&) {  // its end is not known
    return true;
  }
}

/// Renders a conversation of two messages. Its last learned tokens, after the assistant's word, end
/// a turn.
void ChatTemplate::find_end_of_turn() {
  const auto end = tokenizer_->end_of_text();
  if (end) end_of_turn_ = {*end};
  try {
    const std::string word = "Yes";
    Conversation probe = fit_to_template(Conversation({{"user", "Hi"}, {"assistant", word}}));
    probe.now = parse_chat_date("2024-07-26", "");  // any day
    const Text whole = text(probe, false);
    const std::size_t at = whole.bytes().rfind(word);
    if (at == std::string::npos) return;
    std::string_view rest = std::string_view(whole.bytes()).substr(at + word.size());
    if (const std::string prompt = closing_prompt_for(probe); rest.ends_with(prompt))
      rest.remove_suffix(prompt.size());
    const std::string_view sign = jinja::strip(rest, Strip::both, nullptr);
    if (sign.empty()) return;
    std::optional<std::int32_t> last;
    for (std::string_view left = sign; !left.empty();) {
      const auto match = all_tokens_.find(left);
      if (!match) break;
      last = match->token;
      left.remove_prefix(match->begin + match->bytes);
    }
    end_of_turn_ = last ? std::vector{*last}
                        : tokenizer_->encode(sign, {.added_tokens = false, .continues = true});
  } catch (const UsageError&) {  // the template refuses this conversation: its end is not known
  }
}

}  // namespace axonn
