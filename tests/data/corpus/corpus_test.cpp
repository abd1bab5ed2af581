#include "axonn/data/corpus/corpus.h"

#include <chrono>
#include <set>

#include <gmock/gmock.h>

#include "axonn/data/corpus/synthetic/synthetic.h"
#include "axonn/data/corpus/tokens/token_file.h"
#include "axonn/foundation/base/check.h"

#include "tests/data/text/small_bpe.h"

using namespace axonn;
using namespace axonn::test;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

namespace {

std::string text_of(const Corpus& corpus, const TokenStream& stream) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(stream.size()));
  stream.source->read(stream.begin, tokens);
  return corpus.tokenizer->decode(tokens);
}

std::string token_file(const TempFolder& folder, const std::string& name,
                       const std::vector<std::int32_t>& tokens) {
  TokenWriter writer(folder.path(name), 65'000);
  writer.append(tokens);
  writer.finish();
  return folder.path(name);
}

void expect_refusal(const DataConfig& config, const CorpusOptions& options, const char* why) {
  EXPECT_THAT([&] { open_corpus(config, options); },
              testing::ThrowsMessage<UsageError>(HasSubstr(why)));
}

}  // namespace

TEST(Corpus, ByDefaultAllDataAreTrainedOn) {
  const Corpus corpus = open_corpus({.synthetic = 5000}, {});
  EXPECT_EQ(corpus.train[0].size(), 5000);
  EXPECT_TRUE(corpus.validation.empty());
}

TEST(Corpus, ValidationIsTheLastTenthOfAText) {
  TempFolder folder;
  std::string text(115, 'a');
  for (std::size_t i = 103; i < 115; ++i) text[i] = 'b';  // 115 * 0.9 = 103.5
  const Corpus corpus =
      open_corpus({.text = {folder.file("t.txt", text)}, .validation = "0.1"}, {});
  ASSERT_EQ(corpus.train.size(), 1u);
  ASSERT_EQ(corpus.validation.size(), 1u);
  EXPECT_EQ(text_of(corpus, corpus.train[0]), std::string(103, 'a'));
  EXPECT_EQ(text_of(corpus, corpus.validation[0]), std::string(12, 'b'));
}

TEST(Corpus, ValidationMayBeOffOrAFileOfTextOrTokens) {
  TempFolder folder;
  const std::string text = folder.file("t.txt", "0123456789"), other = folder.file("o.txt", "xyz");
  for (const char* none : {"", "0", "0.0"}) {
    const Corpus corpus = open_corpus({.text = {text}, .validation = none}, {});
    EXPECT_EQ(corpus.train[0].size(), 10);
    EXPECT_TRUE(corpus.validation.empty());
  }
  for (const std::string& file : {other, token_file(folder, "o.bin", {'x', 'y', 'z'})}) {
    const Corpus corpus = open_corpus({.text = {text}, .validation = file}, {});
    EXPECT_EQ(text_of(corpus, corpus.train[0]), "0123456789");
    EXPECT_EQ(text_of(corpus, corpus.validation[0]), "xyz");
  }
  expect_refusal({.text = {text}, .validation = "1"}, {}, "[data] validation = 1");
  expect_refusal({.text = {text}, .validation = "-0.1"}, {}, "[data] validation = -0.1");
  expect_refusal({.text = {text}, .validation = "nan"}, {}, "[data] validation = nan");
  expect_refusal({.text = {text}, .validation = "none.txt"}, {}, "no file or folder none.txt");
}

TEST(Corpus, TokenFilesWithoutWeightsAreOneStreamAndWithWeightsABlend) {
  TempFolder folder;
  const auto a = token_file(folder, "s-1.bin", {1, 2}), b = token_file(folder, "s-2.bin", {3, 4});
  const std::string pattern = folder.path("s-*.bin");
  for (const auto& tokens : {std::vector{a, b}, std::vector{pattern}, std::vector{a + " " + b}}) {
    const Corpus corpus = open_corpus({.tokens = tokens, .validation = ""}, {});
    ASSERT_EQ(corpus.train.size(), 1u);
    std::vector<std::int32_t> got(4);
    corpus.train[0].source->read(0, got);
    EXPECT_THAT(got, ElementsAre(1, 2, 3, 4));
  }
  const Corpus blend =
      open_corpus({.tokens = {"0.25 " + a + " 0.75 " + b}, .validation = "0.5"}, {});
  ASSERT_EQ(blend.train.size(), 2u);
  EXPECT_EQ(blend.train[1].weight, 0.75);
  EXPECT_EQ(blend.train[1].size(), 1);
  ASSERT_EQ(blend.validation.size(), 2u);
  EXPECT_EQ(blend.validation[1].begin, 1);
}

TEST(Corpus, SyntheticTextDependsOnTheSeed) {
  const Corpus corpus = open_corpus({.synthetic = 5000, .validation = ""}, {.seed = 9});
  EXPECT_EQ(text_of(corpus, corpus.train[0]), synthetic_text(5000, 9));
}

TEST(Corpus, TextIsTokenisedIntoTheCacheOnceAndAgainWhenItChanges) {
  TempFolder folder;
  const std::string text = folder.file("t.txt", "hello world");
  const std::string cache = folder.path("cache/tokens");
  int runs = 0;
  const CorpusOptions options{.cache = {.folder = cache},
                              .report = [&](const TokenizeProgress&) { ++runs; }};
  const auto open = [&](const std::string& tokenizer) {
    const Corpus corpus =
        open_corpus({.text = {text}, .tokenizer = tokenizer, .validation = ""}, options);
    return text_of(corpus, corpus.train[0]);
  };
  EXPECT_EQ(open("bytes"), "hello world");
  EXPECT_EQ(open("bytes"), "hello world");
  EXPECT_EQ(runs, 1);
  EXPECT_EQ(open(small_bpe(folder)), "hello world<|endoftext|>");
  EXPECT_EQ(runs, 2) << "another tokenizer needs its own cache";
  std::filesystem::last_write_time(
      text, std::filesystem::last_write_time(text) + std::chrono::seconds(1));
  open("bytes");
  EXPECT_EQ(runs, 3) << "a changed file must be tokenised again";
  for (const auto& entry : std::filesystem::directory_iterator(cache))
    std::filesystem::resize_file(entry.path(), 5);
  EXPECT_EQ(open("bytes"), "hello world");
  EXPECT_EQ(runs, 4) << "a damaged cache must be made again";
}

TEST(Corpus, ATokenizerThatDoesNotFitTheTokenFilesIsDetected) {
  TempFolder folder;
  const auto tokens = token_file(folder, "t.bin", {1, 2, 60'000});
  const Corpus corpus = open_corpus({.tokens = {tokens}, .validation = ""}, {});
  EXPECT_EQ(corpus.tokenizer, nullptr) << "the default, bytes, cannot have made the file";
  expect_refusal({.tokens = {tokens}, .tokenizer = small_bpe(folder)}, {},
                 "is 60000, but the tokenizer gpt2");
  expect_refusal({.tokens = {tokens}, .validation = folder.file("v.txt", "x")}, {},
                 "data.validation is the text");
  EXPECT_NE(open_corpus({.tokens = {token_file(folder, "b.bin", {1, 255})}}, {}).tokenizer,
            nullptr);
}

TEST(Corpus, RefusesInvalidTrainingData) {
  TempFolder folder;
  const std::string text = folder.file("t.txt", "hello"), empty = folder.file("e.txt", "");
  expect_refusal({}, {}, "names no training data");
  expect_refusal({.text = {text}, .synthetic = 10}, {}, "exclude one another");
  expect_refusal({.text = {empty}}, {}, "e.txt is empty");
  expect_refusal({.text = {text}, .tokenizer = ""}, {}, "data.tokenizer is empty");
  expect_refusal({.text = {text}}, {.vocab = 255},
                 "has 256 tokens besides those that were added to it, but the model's vocabulary "
                 "has only 255");
  expect_refusal({.tokens = {text}}, {}, "t.txt: does not begin as a token file");
  expect_refusal({.text = {token_file(folder, "t.bin", {1})}}, {}, "is a token file, not text");
  expect_refusal({.tokens = {folder.path("*.none")}}, {}, "no file matches");
}

TEST(Corpus, AFingerprintIsThatOfTheTrainingTokensAndNotOfTheirPlace) {
  TempFolder folder;
  std::vector<std::int32_t> tokens(1000);
  for (int i = 0; i < 1000; ++i) tokens[i] = i % 77;
  const std::string a = token_file(folder, "a.bin", tokens),
                    moved = token_file(folder, "m", tokens);
  ++tokens[500];
  const std::string b = token_file(folder, "b.bin", tokens);
  const auto of = [](const DataConfig& data) { return fingerprint(open_corpus(data, {})); };
  const auto print = [&](std::vector<std::string> files, const char* validation = "0") {
    return of({.tokens = std::move(files), .validation = validation});
  };
  EXPECT_EQ(print({a}), print({moved}));
  const std::vector<std::string> all = {
      print({a}),    print({b}),         print({a, b}),           print({b, a}),
      print({a, a}), print({a}, "0.01"), print({"1", a, "2", b}), print({"2", a, "1", b})};
  EXPECT_EQ(std::set(all.begin(), all.end()).size(), all.size());

  const std::string lines = folder.file("a.jsonl", "{\"text\":\"ab\"}\n{\"text\":\"c\"}\n"),
                    others = folder.file("b.jsonl", "{\"text\":\"ab\"}\n{\"text\":\"d\"}\n");
  const auto examples = [&](const std::string& file) {
    return of({.jsonl = {file}, .validation = ""});
  };
  EXPECT_EQ(examples(lines), examples(lines));
  EXPECT_NE(examples(lines), examples(others));
}

TEST(Corpus, PackedDocumentsAreOtherDataAndTheOtherModesAreTheSame) {
  TempFolder folder;
  const std::string lines = folder.file("t.jsonl", R"({"text": "abcd"}
{"text": "efg"}
)");
  const auto of = [&](DocumentMode mode) {
    return fingerprint(open_corpus({.text = {lines}, .documents = mode, .validation = ""}, {}));
  };
  EXPECT_EQ(of(DocumentMode::separate), of(DocumentMode::joined));
  EXPECT_EQ(of(DocumentMode::apertus), of(DocumentMode::joined));
  EXPECT_NE(of(DocumentMode::packed), of(DocumentMode::joined)) << "another order of sequences";
}

TEST(Corpus, ValidationTreatsDocumentsAsTrainingDoes) {
  TempFolder folder;
  const std::string lines = folder.file("t.jsonl", R"({"text": "abcd"}
{"text": "efgh"}
)");
  for (const DocumentMode mode : {DocumentMode::separate, DocumentMode::packed}) {
    const Corpus corpus =
        open_corpus({.text = {lines}, .documents = mode, .validation = lines}, {.vocab = 256});
    const auto training = training_sequences(corpus, {.seq_len = 7, .shuffle = false}),
               validation = validation_sequences(corpus, 7, 256);
    Sequence want, got;
    training->read(0, want);
    validation->read(0, got);
    EXPECT_EQ(got.targets, want.targets);
    EXPECT_EQ(got.starts, want.starts);
    EXPECT_EQ(got.positions, want.positions);
    EXPECT_EQ(got.positions.at(4), mode == DocumentMode::packed ? 1 : 0);
  }
}

TEST(Corpus, TellsWhereDocumentsEndOrRefusesToSeparateThem) {
  TempFolder folder;
  const std::string text = folder.file("t.txt", "hello"),
                    bin = token_file(folder, "t.bin", {1, 2, 3, 7, 4, 5}),
                    megatron = token_file(folder, "m", {1, 2, 3, 7, 4, 5});
  const auto separate = DocumentMode::separate;
  EXPECT_EQ(open_corpus({.text = {text}}, {}).documents.mode, DocumentMode::joined);
  for (const DataConfig& known : {DataConfig{.text = {text}, .documents = separate},
                                  DataConfig{.tokens = {megatron}, .documents = separate},
                                  DataConfig{.tokens = {bin}, .documents = separate, .eod = 7}}) {
    const DocumentRule rule = open_corpus(known, {.vocab = 256}).documents;
    EXPECT_EQ(rule.mode, separate);
    EXPECT_EQ(rule.end_of_text, known.eod);
  }
  expect_refusal({.tokens = {megatron, bin}, .documents = separate}, {},
                 "data.documents is separate, but nothing says where the documents of");
  expect_refusal({.tokens = {bin}, .documents = DocumentMode::apertus}, {},
                 "set data.eod to the token that ends a document");
  expect_refusal({.synthetic = 100, .documents = separate}, {},
                 "the tokenizer bytes has no end-of-text token");
  expect_refusal({.tokens = {bin}, .documents = DocumentMode::packed, .eod = 7}, {},
                 "does not store where its documents begin");
  expect_refusal({.text = {text}, .eod = 256}, {.vocab = 256},
                 "data.eod is 256, but model.vocab is 256");
}
