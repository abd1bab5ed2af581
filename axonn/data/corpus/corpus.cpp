#include "axonn/data/corpus/corpus.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <sstream>

#include "axonn/data/corpus/files/file_notes.h"
#include "axonn/data/corpus/files/jsonl.h"
#include "axonn/data/corpus/files/text_reader.h"
#include "axonn/data/corpus/forget.h"
#include "axonn/data/corpus/goldfish.h"
#include "axonn/data/corpus/preferences/answer_files.h"
#include "axonn/data/corpus/preferences/pair_sequences.h"
#include "axonn/data/corpus/rollouts/rollout_lines.h"
#include "axonn/data/corpus/synthetic/synthetic.h"
#include "axonn/data/corpus/tokens/growing_tokens.h"
#include "axonn/data/corpus/tokens/token_file.h"
#include "axonn/data/text/model_text.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/files.h"
#include "axonn/foundation/base/hash.h"
#include "axonn/foundation/base/log.h"
#include "axonn/foundation/base/numbers.h"

namespace axonn {

void check_data(const DataConfig& data) {
  if (data.sources() == 0)
    refuse("[data] names no training data; set one of text, tokens, jsonl and synthetic");
  if (data.sources() > 1)
    refuse(
        "[data] text, tokens, jsonl and synthetic exclude one another; set one of them, or make ",
        "token files with 'axonn data tokenize' and blend them in tokens");
  const auto fraction = parse_real(data.validation);
  if (fraction && !(*fraction >= 0 && *fraction < 1))
    refuse("[data] validation = ", data.validation,
           " is not between 0 and 1; give a fraction such as 0.1, or a file");
  if (data.mask_history && data.train_on_prompt)
    refuse("[data] mask_history = true learns less than all answers, and train_on_prompt = true ",
           "everything; leave one of them out");
}

namespace {

/// Whether the path names a file or is the prefix of Megatron files.
bool is_there(const std::string& path) { return path_exists(path) || path_exists(path + ".idx"); }

/// The words of all entries. An entry that is an existing path is one word.
std::vector<std::string> words_of(const std::vector<std::string>& entries) {
  std::vector<std::string> words;
  for (const std::string& entry : entries) {
    if (is_there(entry)) {
      words.push_back(entry);
      continue;
    }
    std::istringstream stream(entry);
    for (std::string word; stream >> word;) words.push_back(word);
  }
  return words;
}

TokenStream whole(std::shared_ptr<const TokenSource> source, double weight = 1) {
  const std::int64_t size = source->size();
  return {std::move(source), 0, size, weight};
}

std::shared_ptr<const TokenSource> open_text(const std::vector<std::string>& paths,
                                             const std::string& field, const Tokenizer& tokenizer,
                                             const CorpusOptions& options) {
  const auto files = text_files(paths);
  const TokenizeOptions how{.field = field, .report = options.report};
  auto source = options.cache.folder.empty()
                    ? tokenize_in_memory(files, tokenizer, how)
                    : tokenize_cached(files, tokenizer, options.cache, how);
  if (source->size() == 0) refuse("data.text: ", files.front(), " is empty");
  return source;
}

std::vector<TokenStream> open_tokens(const std::vector<std::string>& entries, RawTokens raw) {
  std::vector<TokenStream> streams;
  for (const auto& [weight, paths] : parse_blend(entries)) {
    std::vector<std::shared_ptr<const TokenSource>> shards;
    for (const std::string& path : paths)
      for (const std::string& shard : expand_pattern(path))
        if (GrowingTokens::recognises(shard))
          shards.push_back(std::make_shared<GrowingTokens>(shard, raw));
        else
          shards.push_back(std::make_shared<TokenFile>(shard, raw));
    streams.push_back(whole(std::make_shared<JoinedTokens>(std::move(shards)), weight));
  }
  return streams;
}

/// Checks the first tokens of every stream against the tokenizer. If they do not fit, drops the
/// default tokenizer "bytes" and throws UsageError for any other. The first 64 Ki tokens are enough
/// to detect a file of another tokenizer; reading all would take long.
void fit_tokenizer(Corpus& corpus, std::int64_t model_vocab) {
  const std::int64_t vocab = corpus.tokenizer->vocab_size();
  if (corpus.tokenizer->name() == "bytes" && model_vocab > 0 && model_vocab < vocab) {
    corpus.tokenizer = nullptr;  // the default, and the model has fewer tokens
    return;
  }
  std::vector<std::int32_t> first;
  for (const TokenStream& stream : corpus.train) {
    if (stream.source->grows()) continue;  // whoever writes it knows its tokenizer
    first.resize(static_cast<std::size_t>(std::min<std::int64_t>(stream.size(), 1 << 16)));
    stream.source->read(stream.begin, first);
    const auto other = std::ranges::find_if(first, [&](std::int32_t t) { return t >= vocab; });
    if (other == first.end()) continue;
    if (corpus.tokenizer->name() != "bytes")
      refuse(stream.source->where(stream.begin + (other - first.begin())), " is ", *other,
             ", but the tokenizer ", corpus.tokenizer->name(), " has ", vocab,
             " tokens; set data.tokenizer to the one that the file was made with");
    corpus.tokenizer = nullptr;
    return;
  }
}

ChatTemplate chat_template_of(const DataConfig& config,
                              const std::shared_ptr<const Tokenizer>& tokenizer) {
  const ModelText text = with_tokenizer(config.model_text.get(), config.tokenizer);
  ChatArguments arguments = chat_arguments(config.chat_template, config.chat_template_args, text,
                                           "data.chat_template_args");
  arguments.last_turn_only = config.mask_history;
  return {tokenizer, find_chat_format(config.chat_template, text), std::move(arguments)};
}

ExampleEncoder example_encoder(const DataConfig& config, std::shared_ptr<const Tokenizer> tokenizer,
                               const std::string& file) {
  std::optional<ChatTemplate> chat;
  if (kind_of_examples(file) == Example::Kind::messages) chat = chat_template_of(config, tokenizer);
  return ExampleEncoder(std::move(tokenizer), std::move(chat), config.train_on_prompt);
}

DocumentRange encoded_files(const std::vector<std::string>& paths, const ExampleEncoder& encoder,
                            const CorpusOptions& options) {
  auto documents = encode_examples(example_files(paths), encoder, options.cache, options.report);
  const std::int64_t count = documents->count();
  return {std::move(documents), 0, count};
}

/// Moves the last part of every stream to validation.
void split_off(Corpus& corpus, double fraction) {
  if (fraction == 0) return;
  for (TokenStream& stream : corpus.train) {
    const auto size = static_cast<double>(stream.size());
    const auto kept = static_cast<std::int64_t>(std::floor(size * (1 - fraction)));
    TokenStream tail = stream;
    tail.begin = stream.end = stream.begin + kept;
    corpus.validation.push_back(std::move(tail));
  }
}

/// data.validation if it is a file, else nothing.
std::vector<std::string> validation_files(const DataConfig& config) {
  if (config.validation.empty() || parse_real(config.validation)) return {};
  return {config.validation};
}

void add(const std::vector<std::string>& warnings, Corpus& corpus) {
  corpus.warnings.insert(corpus.warnings.end(), warnings.begin(), warnings.end());
}

/// The tokens that end an answer of the model.
std::vector<std::int32_t> ends_of(const DataConfig& config, const Tokenizer& tokenizer) {
  const ModelText text = with_tokenizer(config.model_text.get(), config.tokenizer);
  std::vector<std::int32_t> ends = text.ends;
  for (const std::optional<std::int32_t>& also : {tokenizer.end_of_text(), text.pad})
    if (also) ends.push_back(*also);
  if (config.eod >= 0) ends.push_back(static_cast<std::int32_t>(config.eod));
  return ends;
}

/// Opens data.jsonl as recorded answers with rewards, or as prompts.
void open_rollouts(const DataConfig& config, const CorpusOptions& options, Corpus& corpus) {
  const std::vector<std::string> files = example_files(config.jsonl);
  if (parse_real(config.validation).value_or(1) != 0 && !config.validation.empty())
    refuse("data.validation = ", config.validation,
           ": answers and prompts of [rl] are not held out; set it to 0");
  AnswerFormat format{.tokenizer = corpus.tokenizer};
  const RolloutForm form = form_of_rollouts(files.front());
  if (form.messages) format.chat = chat_template_of(config, corpus.tokenizer);
  corpus.answers = config.answers;
  RolloutTokens tokens{options.vocab, ends_of(config, *corpus.tokenizer)};
  if (format.chat && format.chat->end_of_turn().size() == 1)
    tokens.ends.push_back(format.chat->end_of_turn().front());
  if (form.recorded && !config.answers.mixed)
    corpus.rollouts = std::make_shared<const RolloutFile>(
        read_rollouts(files, format, tokens, config.answers.group));
  else
    corpus.prompts = std::make_shared<const PromptFile>(
        read_prompts(files, format, tokens, config.answers.mixed));
}

/// Opens data.jsonl and data.validation as the answers of a loss of preferences.
void open_answers(const DataConfig& config, const CorpusOptions& options, Corpus& corpus) {
  const std::vector<std::string> files = example_files(config.jsonl),
                                 validation = example_files(validation_files(config));
  AnswerFormat format{.tokenizer = corpus.tokenizer};
  if (holds_message_answers(files.front(), config.answers))
    format.chat = chat_template_of(config, corpus.tokenizer);
  const auto open = [&](const std::vector<std::string>& of, double held_out) {
    AnswerDocuments answers = encode_answers(of, format, config.answers, held_out);
    if (!options.cache.makes) return answers;
    add(notes_of_answers(of, config.answers, format.chat), corpus);
    if (answers.left_out > 0)
      corpus.warnings.push_back(concat(
          format_count(answers.left_out), " lines of ", of.front(),
          " are left out: their prompts fill preference.max_length = ", config.answers.max_length));
    return answers;
  };
  corpus.answers = config.answers;
  corpus.excess_length = config.excess_length;
  AnswerDocuments all = open(files, parse_real(config.validation).value_or(0));
  const std::int64_t count = all.documents->count();
  corpus.train_documents = {all.documents, 0, all.trained};
  corpus.validation_documents = {all.documents, all.trained, count};
  corpus.good = corpus.validation_good = std::move(all.good);
  if (validation.empty()) return;
  AnswerDocuments others = open(validation, 0);
  corpus.validation_documents = {others.documents, 0, others.documents->count()};
  corpus.validation_good = std::move(others.good);
}

/// Opens data.jsonl, and data.validation: a fraction of data.jsonl or another JSONL file.
void open_jsonl(const DataConfig& config, const CorpusOptions& options, Corpus& corpus) {
  if (config.answers.kind == AnswerData::Kind::rollouts)
    return open_rollouts(config, options, corpus);
  if (config.answers.any()) return open_answers(config, options, corpus);
  const ExampleEncoder encoder =
      example_encoder(config, corpus.tokenizer, example_files(config.jsonl).front());
  if (options.cache.makes) {
    if (std::string found = encoder.warning(); !found.empty()) corpus.warnings.push_back(found);
    add(notes_of_examples(example_files(config.jsonl), encoder), corpus);
    add(notes_of_examples(example_files(validation_files(config)), encoder), corpus);
  }
  corpus.excess_length = config.excess_length;
  DocumentRange& train = corpus.train_documents = encoded_files(config.jsonl, encoder, options);
  if (config.validation.empty()) return;
  const auto fraction = parse_real(config.validation);
  if (!fraction) {
    corpus.validation_documents = encoded_files({config.validation}, encoder, options);
    return;
  }
  corpus.validation_documents = train;
  const auto kept =
      static_cast<std::int64_t>(std::floor(static_cast<double>(train.end) * (1 - *fraction)));
  if (kept == 0)
    refuse("data.validation = ", config.validation, " leaves none of the ", train.end,
           " examples of ", config.jsonl.front(), " for training; lower it");
  train.end = corpus.validation_documents.begin = kept;
}

/// Refuses what needs tokens that are not yet written.
void check_growing(const DataConfig& config, const Corpus& corpus) {
  for (const TokenStream& stream : corpus.train) {
    if (!stream.source->grows()) continue;
    if (config.shuffle)
      refuse(stream.source->name(), " is still being written, so its sequences come in its order: ",
             "set data.shuffle = false");
    if (parse_real(config.validation).value_or(0) > 0)
      refuse(stream.source->name(), " is still being written, so no part of it can be held out: ",
             "give a file as data.validation");
  }
}

/// Sets corpus.documents. Refuses documents that shall not be joined if nothing says where they
/// end.
void set_documents(const DataConfig& config, std::int64_t vocab, Corpus& corpus) {
  corpus.documents = document_rule(config, corpus.tokenizer.get(), vocab);
  for (const auto* streams : {&corpus.train, &corpus.validation})
    for (const TokenStream& stream : *streams)
      check_documents(corpus.documents, *stream.source, corpus.tokenizer.get());
}

}  // namespace

DocumentRule document_rule(const DataConfig& config, const Tokenizer* tokenizer,
                           std::int64_t vocab) {
  DocumentRule rule{.mode = config.documents};
  if (config.eod >= 0) {
    if (vocab > 0 && config.eod >= vocab)
      refuse("data.eod is ", config.eod, ", but model.vocab is ", vocab,
             "; set it to the token that ends a document");
    rule.end_of_text = static_cast<std::int32_t>(config.eod);
  } else if (tokenizer) {
    rule.end_of_text = tokenizer->end_of_text().value_or(-1);
  }
  return rule;
}

void check_documents(const DocumentRule& rule, const TokenSource& source,
                     const Tokenizer* tokenizer) {
  if (rule.mode == DocumentMode::joined || source.has_documents()) return;
  if (rule.mode == DocumentMode::packed)
    refuse("data.documents is packed, but ", source.name(),
           " does not store where its documents begin; only text and Megatron's files do: make "
           "one with 'axonn data tokenize', or set data.documents to separate");
  if (rule.end_of_text < 0)
    refuse("data.documents is ", kDocumentModes[static_cast<int>(rule.mode)],
           ", but nothing says where the documents of ", source.name(), " end: ",
           tokenizer ? concat("the tokenizer ", tokenizer->name(), " has no end-of-text token")
                     : "data.tokenizer is not the one that made the tokens",
           ", and only text and Megatron's files store documents; set data.eod to the token "
           "that ends a document");
}

std::vector<WeightedPaths> parse_blend(const std::vector<std::string>& entries) {
  const std::vector<std::string> words = words_of(entries);
  if (words.empty()) refuse("data.tokens is empty; give token files, or weights and prefixes");
  if (!parse_real(words[0]) || is_there(words[0])) return {{1, words}};
  std::vector<WeightedPaths> blend;
  for (std::size_t i = 0; i < words.size(); i += 2) {
    const auto weight = parse_real(words[i]);
    if (!weight)
      refuse("data.tokens: expected a weight before ", words[i],
             "; a blend is \"w1 path1 w2 path2 ...\"");
    if (!(*weight > 0) || !std::isfinite(*weight))
      refuse("data.tokens: the weight ", words[i], " is not a positive number");
    if (i + 1 == words.size())
      refuse("data.tokens: no path after the weight ", words[i],
             "; a blend is \"w1 path1 w2 path2 ...\"");
    blend.push_back({*weight, {words[i + 1]}});
  }
  return blend;
}

DocumentRange open_examples(const std::string& file, const DataConfig& config,
                            std::shared_ptr<const Tokenizer> tokenizer,
                            const CorpusOptions& options) {
  return encoded_files({file},
                       example_encoder(config, std::move(tokenizer), example_files({file}).front()),
                       options);
}

namespace {

/// Opens everything of the corpus but its documents' rule.
Corpus open_sources(const DataConfig& config, const CorpusOptions& options) {
  Corpus corpus;
  if (!config.tokenizer.empty() || config.tokens.empty())
    corpus.tokenizer = make_tokenizer(config.tokenizer);
  if (corpus.tokenizer) add(corpus.tokenizer->notes(), corpus);
  if (!config.jsonl.empty()) {
    if (options.vocab > 0) check_rows(*corpus.tokenizer, options.vocab);
    open_jsonl(config, options, corpus);
    return corpus;
  }
  if (!config.tokens.empty()) {
    corpus.train = open_tokens(config.tokens, config.token_type);
    if (corpus.tokenizer) fit_tokenizer(corpus, options.vocab);
  } else if (!config.text.empty()) {
    corpus.train = {whole(open_text(config.text, config.text_field, *corpus.tokenizer, options))};
    if (options.cache.makes) {
      add(notes_of_texts(text_files(config.text), config.text_field), corpus);
      if (std::string note = note_of_left_out(config.text); !note.empty())
        corpus.warnings.push_back("data.text: " + note);
    }
  } else {
    corpus.train = {whole(std::make_shared<MemoryTokens>(
        concat("synthetic text of ", config.synthetic, " bytes"),
        corpus.tokenizer->encode(synthetic_text(config.synthetic, options.seed))))};
  }
  if (corpus.tokenizer && options.vocab > 0) check_rows(*corpus.tokenizer, options.vocab);

  if (config.validation.empty()) return corpus;
  if (const auto fraction = parse_real(config.validation)) {
    split_off(corpus, *fraction);
  } else if (TokenFile::recognises(config.validation, config.token_type)) {
    corpus.validation = open_tokens({config.validation}, config.token_type);
  } else {
    if (!corpus.tokenizer)
      refuse("data.validation is the text ", config.validation,
             ", but data.tokenizer is not the tokenizer that made data.tokens; set it to that one, "
             "or give a token file");
    corpus.validation = {
        whole(open_text({config.validation}, config.text_field, *corpus.tokenizer, options))};
    if (options.cache.makes)
      add(notes_of_texts(text_files({config.validation}), config.text_field), corpus);
  }
  return corpus;
}

}  // namespace

Corpus open_corpus(const DataConfig& config, const CorpusOptions& options) {
  check_data(config);
  Corpus corpus = open_sources(config, options);
  check_growing(config, corpus);
  set_documents(config, options.vocab, corpus);
  forget_documents(config, corpus);
  return corpus;
}

std::string fingerprint(const Corpus& corpus) {
  constexpr std::int64_t kSamples = 64, kTokens = 64;
  std::string key;
  const auto add = [&](const std::vector<std::int32_t>& tokens) {
    key += hex_of(xxh3(std::as_bytes(std::span(tokens))));
  };
  const auto spread = [](std::int64_t i, std::int64_t most) {  // of 0 to most
    return most / (kSamples - 1) * i + most % (kSamples - 1) * i / (kSamples - 1);
  };
  for (const TokenStream& stream : corpus.train) {
    if (stream.source->grows()) {  // whoever writes it decides what it holds, and how much
      key += concat("grows ", stream.weight, ' ');
      continue;
    }
    key += concat(stream.size(), ' ', stream.weight, ' ');
    std::vector<std::int32_t> tokens(std::min(stream.size(), kTokens));
    for (std::int64_t i = 0; i < kSamples; ++i) {
      stream.source->read(stream.begin + spread(i, stream.size() - std::ssize(tokens)), tokens);
      add(tokens);
    }
  }
  const auto& [documents, begin, end, blanks] = corpus.train_documents;
  if (begin < end) {
    key += concat(begin, ' ', end, ' ', documents->tokens(), ' ');
    for (std::int64_t i = 0; i < kSamples; ++i) {
      add(documents->coded(begin + spread(i, end - begin - 1)));
    }
  }
  if (corpus.prompts) {
    key += " prompts";
    for (const Prompt& one : corpus.prompts->prompts) {
      add(one.tokens);
      if (corpus.answers.mixed) add(one.given.answer);
    }
  } else if (corpus.rollouts) {
    key += concat(" rollouts ", corpus.answers.group);
    for (const Rollout& one : corpus.rollouts->answers) {
      add(one.prompt);
      add(one.answer);
      key += hex_of(xxh3(std::as_bytes(std::span(one.rewards))));
    }
  } else if (corpus.answers.any()) {
    key += " pairs";
  }
  for (const bool good : corpus.good) key += good ? '1' : '0';
  if (corpus.documents.mode == DocumentMode::packed) key += " packed";  // another order
  if (corpus.excess_length != ExcessLength::split)
    key += concat(' ', kExcessLengths[static_cast<std::size_t>(corpus.excess_length)]);
  return hex_of(xxh3(key));
}

std::unique_ptr<const Sequences> training_sequences(const Corpus& corpus,
                                                    const SamplerOptions& options) {
  if (corpus.answers.any())
    return std::make_unique<Sampler>(
        std::make_unique<PairSequences>(corpus.train_documents, options.seq_len, options.vocab,
                                        corpus.excess_length, corpus.answers),
        options);
  if (corpus.train_documents.documents)
    return std::make_unique<Sampler>(
        std::make_unique<PackedDocuments>(corpus.train_documents, options.seq_len, options.vocab,
                                          corpus.excess_length),
        options);
  SamplerOptions of_corpus = options;
  of_corpus.documents = corpus.documents;
  return std::make_unique<Sampler>(corpus.train, of_corpus);
}

std::unique_ptr<const Sequences> validation_sequences(const Corpus& corpus, std::int64_t seq_len,
                                                      std::int64_t vocab) {
  if (corpus.answers.any() && !corpus.validation_documents.empty())
    return std::make_unique<PairSequences>(corpus.validation_documents, seq_len, vocab,
                                           corpus.excess_length, corpus.answers);
  if (!corpus.validation_documents.empty())
    return std::make_unique<PackedDocuments>(corpus.validation_documents, seq_len, vocab,
                                             corpus.excess_length);
  if (corpus.validation.empty()) return nullptr;
  return stream_sequences(corpus.validation, seq_len, vocab, corpus.documents);
}

SequenceMask make_goldfish(const GoldfishConfig& config, std::uint64_t seed, const Corpus& corpus) {
  if (config.k == 0) return {};
  return goldfish_mask(config, seed, corpus.documents.end_of_text);
}

}  // namespace axonn
