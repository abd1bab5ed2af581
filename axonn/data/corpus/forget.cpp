#include "axonn/data/corpus/forget.h"

#include <algorithm>
#include <map>
#include <set>
#include <span>

#include "axonn/data/corpus/files/jsonl.h"
#include "axonn/data/corpus/files/text_reader.h"
#include "axonn/data/corpus/tokens/tokenize.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/hash.h"

namespace axonn {

namespace {

using Tokens = std::vector<std::int32_t>;

/// Shorter ones occur by chance in other text.
constexpr std::int64_t kLeastTokens = 8;

struct NamedTokens {
  std::string name;
  Tokens tokens;
};

std::string name_of(std::int64_t number, std::int64_t count, const std::string& file) {
  return count == 1 ? file : concat("document ", number + 1, " of ", file);
}

/// The documents of files of text, without the tokens that begin and end them.
std::vector<NamedTokens> read_texts(const DataConfig& config, const Tokenizer& tokenizer) {
  std::vector<NamedTokens> documents;
  for (const std::string& file : text_files(config.forget)) {
    const auto source = tokenize_in_memory({file}, tokenizer, {.field = config.text_field});
    std::vector<std::int64_t> begins;
    source->document_begins(0, source->size(), begins);
    if (begins.empty()) begins.push_back(0);
    const std::int64_t count = std::ssize(begins);
    begins.push_back(source->size());
    for (std::int64_t d = 0; d < count; ++d) {
      Tokens tokens(begins[d + 1] - begins[d]);
      source->read(begins[d], tokens);
      const std::vector<std::int32_t>& first = tokenizer.begin_of_text();
      if (std::ranges::mismatch(first, tokens).in1 == first.end())
        tokens.erase(tokens.begin(), tokens.begin() + std::ssize(first));
      if (!tokens.empty() && tokens.back() == tokenizer.end_of_text().value_or(-1))
        tokens.pop_back();
      documents.push_back({name_of(d, count, file), std::move(tokens)});
    }
  }
  return documents;
}

/// The lines of files of examples, as they are coded in Documents.
std::vector<NamedTokens> read_examples(const DataConfig& config, const Corpus& corpus) {
  std::vector<NamedTokens> examples;
  for (const std::string& file : example_files(config.forget)) {
    const DocumentRange read = open_examples(file, config, corpus.tokenizer, {});
    for (std::int64_t d = read.begin; d < read.end; ++d)
      examples.push_back({name_of(d, read.end, file), read.documents->coded(d)});
  }
  return examples;
}

/// Sets the occurrences of documents in the streams of a corpus.
void find_texts(const std::vector<Tokens>& passages, const Corpus& corpus,
                std::vector<ForgottenDocument>& documents) {
  for (const TokenStream& stream : corpus.train) {
    const auto occurrences = find_passages(*stream.source, {stream.begin, stream.end}, passages);
    for (std::size_t d = 0; d < passages.size(); ++d) {
      auto& spans = documents[d].occurrences.emplace_back();
      for (const std::int64_t at : occurrences[d])
        spans.push_back({at, at + std::ssize(passages[d])});
    }
  }
}

/// Sets the numbers of examples in those of a corpus.
void find_examples(const std::vector<Tokens>& wanted, const Corpus& corpus,
                   std::vector<ForgottenDocument>& documents) {
  std::map<Tokens, std::vector<Span>> found;
  std::set<std::int64_t> sizes;
  for (const Tokens& example : wanted) {
    found[example];
    sizes.insert(std::ssize(example));
  }
  const DocumentRange& all = corpus.train_documents;
  for (std::int64_t d = all.begin; d < all.end; ++d) {
    if (!sizes.contains(all.documents->size(d))) continue;
    if (const auto one = found.find(all.documents->coded(d)); one != found.end())
      one->second.push_back({d, d + 1});
  }
  for (std::size_t d = 0; d < wanted.size(); ++d)
    documents[d].occurrences.push_back(found.at(wanted[d]));
}

std::shared_ptr<const Blanks> blanks_of(std::vector<Span> spans, const Corpus& corpus) {
  if (spans.empty()) return nullptr;
  const std::int32_t filler = corpus.documents.end_of_text == 0 ? 1 : 0;
  return std::make_shared<const Blanks>(Blanks{joined_spans(std::move(spans)), filler});
}

}  // namespace

void forget_documents(const DataConfig& config, Corpus& corpus) {
  if (config.forget.empty()) return;
  if (config.answers.any())
    refuse("data.forget: documents cannot be left out of the answers and prompts of [preference] ",
           "and [rl]; take their lines out of data.jsonl and train anew");
  if (!corpus.tokenizer)
    refuse("data.forget: its documents need the tokenizer that made data.tokens; set ",
           "data.tokenizer to that one");
  for (const TokenStream& stream : corpus.train)
    if (stream.source->grows())
      refuse("data.forget: ", stream.source->name(),
             " is still being written, so documents cannot be found in it; use the whole file");
  const bool examples = corpus.train_documents.documents != nullptr;
  std::vector<ForgottenDocument> documents;
  std::vector<Tokens> tokens;
  for (auto& [name, of_document] :
       examples ? read_examples(config, corpus) : read_texts(config, *corpus.tokenizer)) {
    const std::int64_t least = examples ? 1 : kLeastTokens;
    if (std::ssize(of_document) < least)
      refuse("data.forget: ", name, " has ", of_document.size(), " tokens, of at least ", least,
             " that a document needs to be told from other text; give a longer part of the text");
    documents.push_back(
        {.name = name, .hash = hex_of(xxh3(std::as_bytes(std::span(of_document))))});
    tokens.push_back(std::move(of_document));
  }
  if (tokens.empty()) refuse("data.forget: ", config.forget.front(), " has no documents");
  examples ? find_examples(tokens, corpus, documents) : find_texts(tokens, corpus, documents);
  corpus.forgotten = std::make_shared<const std::vector<ForgottenDocument>>(std::move(documents));
  corpus = with_blanks(std::move(corpus), [](const ForgottenDocument&) { return true; });
}

std::span<const ForgottenDocument> forgotten_of(const Corpus& corpus) {
  if (!corpus.forgotten) return {};
  return *corpus.forgotten;
}

Corpus with_blanks(Corpus corpus, const std::function<bool(const ForgottenDocument&)>& which) {
  if (!corpus.forgotten) return corpus;
  const auto blanks = [&](std::size_t occurrence) {
    std::vector<Span> spans;
    for (const ForgottenDocument& document : *corpus.forgotten)
      if (which(document))
        spans.insert(spans.end(), document.occurrences[occurrence].begin(),
                     document.occurrences[occurrence].end());
    return blanks_of(std::move(spans), corpus);
  };
  if (corpus.train_documents.documents) corpus.train_documents.blanks = blanks(0);
  for (std::size_t s = 0; s < corpus.train.size(); ++s) corpus.train[s].blanks = blanks(s);
  return corpus;
}

void refuse_unknown_documents(const std::vector<std::shared_ptr<const Corpus>>& stages) {
  if (stages.empty()) return;
  std::string names;
  std::int64_t count = 0;
  constexpr std::int64_t kMostNames = 8;
  for (std::size_t d = 0; d < forgotten_of(*stages.front()).size(); ++d) {
    const auto has = [&](const auto& corpus) { return forgotten_of(*corpus)[d].found(); };
    if (std::ranges::any_of(stages, has)) continue;
    if (++count <= kMostNames)
      names += concat(names.empty() ? "" : ", ", forgotten_of(*stages.front())[d].name);
  }
  if (count > kMostNames) names += concat(" and ", count - kMostNames, " more");
  if (count > 0)
    refuse("data.forget: the training data have no exact copy, token for token, of ", names,
           "; give the text as it is in the data, or take it out of the file");
}

}  // namespace axonn
