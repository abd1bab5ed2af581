#include "axonn/run/config/run_text.h"

#include <utility>

#include "axonn/data/corpus/files/jsonl.h"
#include "axonn/data/corpus/preferences/answer_files.h"
#include "axonn/data/corpus/rollouts/rollout_lines.h"
#include "axonn/data/storage/checkpoint/checkpoint_reader.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/files.h"
#include "axonn/foundation/base/gguf_file.h"
#include "axonn/network/model/model_files.h"
#include "axonn/run/config/stored_config.h"

namespace axonn {

namespace {

/// Sets the template of conversations and adds the token that ends an assistant's turn.
void take_template(const DataConfig& data, std::shared_ptr<const Tokenizer> tokenizer,
                   ModelText& text) {
  ChatFormat format = find_chat_format(data.chat_template, text);
  if (!data.chat_template_args.empty() || data.chat_template != "auto")
    text.arguments = data.chat_template_args;
  text.forms = format.forms;
  if (!tokenizer) return;
  const ChatTemplate chat(std::move(tokenizer), std::move(format),
                          parse_chat_arguments(text.arguments, "data.chat_template_args"));
  if (chat.end_of_turn().size() == 1) text.add_end(chat.end_of_turn().front());
}

/// The text of a checkpoint that does not state it.
ModelText text_of_older(const CheckpointReader& checkpoint, const std::string& tokenizer) {
  ModelText text = text_beside(tokenizer);
  try {
    const DataConfig data = stored_config_to_run(checkpoint).data;
    if (!data.jsonl.empty())
      take_template(data, tokenizer.empty() ? nullptr : make_tokenizer(tokenizer), text);
  } catch (const UsageError&) {  // the tokenizer or the template is no longer there
  }
  return text;
}

ModelText text_of_one(const ModelFiles& files) {
  ModelText text;
  if (const CheckpointReader* checkpoint = files.checkpoint()) {
    text = checkpoint->has_text(kModelTextName)
               ? parse_model_text(checkpoint->text(kModelTextName),
                                  concat(checkpoint->folder(), '/', kModelTextName))
               : text_of_older(*checkpoint, files.tokenizer());
  } else if (is_gguf(files.path())) {
    text = text_beside(files.path());
  } else if (is_folder(files.path())) {
    text = read_model_text(files.path());
    if (files.adapters()) text.forms = forms_beside(files.path());
  }
  text.tokenizer = files.tokenizer();
  return text;
}

}  // namespace

bool learns_conversations(const DataConfig& data) {
  if (data.jsonl.empty()) return false;
  const std::vector<std::string> files = example_files(data.jsonl);
  if (files.empty()) return false;
  if (data.answers.kind == AnswerData::Kind::rollouts)
    return form_of_rollouts(files.front()).messages;
  return data.answers.any() ? holds_message_answers(files.front(), data.answers)
                            : kind_of_examples(files.front()) == Example::Kind::messages;
}

ModelText text_of_run(const DataConfig& data, std::shared_ptr<const Tokenizer> tokenizer) {
  ModelText text = data.model_text ? *data.model_text : text_beside(data.tokenizer);
  if (text.tokenizer != data.tokenizer && (text.ends.empty() || !text.tokenizer.empty())) {
    const ModelText other = text_beside(data.tokenizer);  // whose tokens have other numbers
    text.ends = other.ends;
    text.pad = other.pad;
  }
  text.tokenizer = data.tokenizer;
  if (tokenizer)
    if (const auto end = tokenizer->end_of_text()) text.add_end(*end);
  if (learns_conversations(data)) take_template(data, std::move(tokenizer), text);
  return text;
}

ModelText text_of_files(const ModelFiles& model, const ModelFiles* adapters) {
  ModelText text = text_of_one(model);
  if (!adapters) return text;
  ModelText more = text_of_one(*adapters);
  // A tokenizer that PEFT saved may have tokens that the base model does not.
  if (!adapters->checkpoint() && !text.tokenizer.empty()) more.tokenizer.clear();
  return with_adapters(std::move(text), more);
}

}  // namespace axonn
