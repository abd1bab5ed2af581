#pragma once

#include <memory>

#include "axonn/data/text/model_text.h"
#include "axonn/run/config/config.h"

namespace axonn {

class ModelFiles;

/// Whether the examples of data.jsonl are conversations. Throws UsageError if they cannot be read.
bool learns_conversations(const DataConfig& data);

/// How the model of a run with this config reads and writes text when it is trained. What the run
/// trains on replaces what the model at model.path had: the template of its conversations, and the
/// token that ends an assistant's turn there, which joins the ends. tokenizer: of the run; null if
/// it is not known. Reads the first conversation of data.jsonl. Throws UsageError as
/// find_chat_format(), and as read_model_text() for the tokenizer's folder.
ModelText text_of_run(const DataConfig& data, std::shared_ptr<const Tokenizer> tokenizer);

/// How a model on disk reads and writes text, in any format, with adapters if these are not null.
/// Checkpoints of older versions do not state it: their config.toml tells it as far as the files
/// that it names still exist. The tokenizer is that of the adapters' run, if it exists, else the
/// base's; a folder in PEFT's format has a tokenizer only for a base without one. Throws UsageError
/// as parse_model_text() and read_model_text().
ModelText text_of_files(const ModelFiles& model, const ModelFiles* adapters = nullptr);

}  // namespace axonn
