#include "axonn/data/corpus/preferences/answer_files.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "axonn/data/corpus/files/text_reader.h"
#include "axonn/data/corpus/preferences/labelled_lines.h"
#include "axonn/data/corpus/preferences/pair_lines.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/host.h"

namespace axonn {

namespace {

using Coded = std::vector<std::int32_t>;

/// What a line became: a pair, or one or two labelled answers.
struct CodedLine {
  std::vector<Coded> answers;
  std::vector<bool> good = {};
};

struct CodedExample {
  Coded coded;
  bool good;
};

/// Throws UsageError unless the answer is of the kind that the format is for.
void want_kind(const AnswerFormat& format, bool messages, const std::string& location) {
  if (messages == format.chat.has_value()) return;
  refuse(location, ": the answers of this line are ",
         format.chat ? "strings, those of the first one lists of messages"
                     : "lists of messages, those of the first one strings",
         "; put each kind into separate files and runs");
}

/// Throws UsageError if no token of the answer is a target.
void want_target(const Coded& coded, const std::string& location) {
  if (coded.size() < 2 || prompt_size(coded) == coded.size())
    refuse(location, ": an answer has no token to learn; leave the line out");
}

bool is_message(const Answer& answer) { return std::holds_alternative<MessageAnswer>(answer); }

CodedLine encode_answers_of(const AnswerFormat& format, const Line& line, AnswerData::Kind kind) {
  if (kind == AnswerData::Kind::pairs) {
    const AnswerPair pair = parse_pair(line.text, line.location);
    want_kind(format, is_message(answers_of(pair).front()), line.location);
    CodedPair coded = encode_pair(format, pair, line.location);
    for (const Coded* one : {&coded.chosen, &coded.rejected}) want_target(*one, line.location);
    return {.answers = {std::move(coded.chosen), std::move(coded.rejected)}};
  }
  CodedLine coded;
  for (const LabelledAnswer& one : parse_labelled(line.text, line.location).answers) {
    want_kind(format, is_message(one.answer), line.location);
    coded.answers.push_back(encode_answer(format, one.answer, line.location));
    want_target(coded.answers.back(), line.location);
    if (prompt_size(coded.answers.back()) == 0)
      refuse(line.location,
             ": \"prompt\" has no token, which the loss kto gives other answers to; ",
             "leave the line out");
    coded.good.push_back(one.good);
  }
  return coded;
}

/// Calls f for each line, in order.
template <typename F>
void for_each_coded(const std::vector<std::string>& files, const AnswerFormat& format,
                    AnswerData::Kind kind, const F& f) {
  constexpr std::size_t kBytesOfCore = std::size_t{1} << 20;
  const int threads = usable_core_count();
  for (TextFiles reader(files); !reader.at_end(); reader.advance()) {
    const std::int64_t before = reader.reader().line();
    const std::vector<Line> lines =
        lines_of(reader.reader().lines(kBytesOfCore * threads), reader.file(), before);
    std::vector<CodedLine> coded(lines.size());
    parallel_for(lines.size(), threads,
                 [&](std::size_t i) { coded[i] = encode_answers_of(format, lines[i], kind); });
    for (CodedLine& line : coded) f(std::move(line));
  }
}

/// Writes documents in twos, cut to the kept length.
class AnswerWriter {
 public:
  AnswerWriter(const std::string& name, const AnswerData& data)
      : writer_("", name), most_(data.max_length) {}

  /// Whether a token of the answer is kept.
  bool keeps(const Coded& coded) const {
    return most_ == 0 || static_cast<std::int64_t>(prompt_size(coded)) < most_;
  }
  void append(const Coded& first, const Coded& second) {
    for (const Coded* one : {&first, &second}) writer_.append(kept(*one));
  }
  std::shared_ptr<const Documents> finish() { return writer_.finish(); }

 private:
  std::span<const std::int32_t> kept(const Coded& coded) const {
    const auto all = std::ssize(coded);
    return std::span(coded).first(most_ == 0 ? all : std::min<std::ptrdiff_t>(all, most_));
  }

  DocumentWriter writer_;
  std::int64_t most_;
};

/// The examples of lines, of which a thousand are taken apart at a time, as TRL's maps do.
std::vector<CodedExample> examples_of(std::span<CodedLine> lines) {
  constexpr std::size_t kAtOnce = 1000;
  std::vector<CodedExample> all;
  for (; !lines.empty(); lines = lines.subspan(std::min(kAtOnce, lines.size())))
    for (const std::size_t answer : {0, 1})  // the good ones of pairs, then the bad ones
      for (CodedLine& line : lines.first(std::min(kAtOnce, lines.size())))
        if (answer < line.answers.size())
          all.push_back({std::move(line.answers[answer]), line.good[answer]});
  return all;
}

/// The prompt of one example with the answer of another.
Coded with_answer(const Coded& prompt, const Coded& answer) {
  Coded both(prompt.begin(), prompt.begin() + static_cast<std::ptrdiff_t>(prompt_size(prompt)));
  both.insert(both.end(), answer.begin() + static_cast<std::ptrdiff_t>(prompt_size(answer)),
              answer.end());
  return both;
}

void write_examples(const std::vector<CodedExample>& examples, std::size_t block,
                    AnswerWriter& writer, AnswerDocuments& to) {
  for (std::size_t begin = 0, end = 0; begin < examples.size(); begin = end) {
    end = std::min(begin + block, examples.size());
    if (end + 1 == examples.size()) ++end;
    for (std::size_t i = begin; i < end; ++i) {
      const auto& [own, good] = examples[i];
      writer.append(own, with_answer(own, examples[i == begin ? end - 1 : i - 1].coded));
      to.good.push_back(good);
    }
  }
}

/// Returns the number of documents.
std::int64_t write_lines(std::span<CodedLine> lines, const AnswerData& data, AnswerWriter& writer,
                         AnswerDocuments& to) {
  if (data.kind == AnswerData::Kind::pairs) {
    for (const CodedLine& line : lines) writer.append(line.answers[0], line.answers[1]);
    return 2 * std::ssize(lines);
  }
  const std::vector<CodedExample> examples = examples_of(lines);
  if (examples.size() == 1)
    refuse("the loss kto compares an answer with those of other examples, and there is but one ",
           "for training or for validation; give at least 2");
  write_examples(examples, static_cast<std::size_t>(data.block), writer, to);
  return 2 * std::ssize(examples);
}

}  // namespace

bool holds_message_answers(const std::string& file, const AnswerData& data) {
  const std::vector<std::string> files{file};
  for (TextFiles reader(files); !reader.at_end(); reader.advance())
    for (const Line& line : lines_of(reader.reader().lines(1), file, 0)) {
      if (data.kind == AnswerData::Kind::labels)
        return is_message(parse_labelled(line.text, line.location).answers.front().answer);
      return is_message(answers_of(parse_pair(line.text, line.location)).front());
    }
  refuse(file, " has no line with answers");
}

std::vector<std::string> unread_answer_keys(const Line& line, const AnswerData& data,
                                            const std::optional<ChatTemplate>& chat) {
  if (data.kind == AnswerData::Kind::labels) {
    const LabelledLine labelled = parse_labelled(line.text, line.location);
    return unread_names(labelled.line_keys, labelled.message_keys, chat);
  }
  const AnswerPair pair = parse_pair(line.text, line.location);
  return unread_names(pair.line_keys, pair.message_keys, chat);
}

AnswerDocuments encode_answers(const std::vector<std::string>& files, const AnswerFormat& format,
                               const AnswerData& data, double held_out) {
  AnswerDocuments all;
  AnswerWriter writer(files.front(), data);
  std::vector<CodedLine> lines;
  for_each_coded(files, format, data.kind, [&](CodedLine line) {
    if (std::ranges::all_of(line.answers, [&](const Coded& one) { return writer.keeps(one); }))
      lines.push_back(std::move(line));
    else
      ++all.left_out;
  });
  const auto trained =
      static_cast<std::size_t>(std::floor(static_cast<double>(lines.size()) * (1 - held_out)));
  if (trained == 0)
    refuse(files.front(), ": none of the ", std::ssize(lines) + all.left_out,
           " lines with answers is left for training; give more lines, lower data.validation, or ",
           "raise preference.max_length");
  const std::span<CodedLine> kept(lines);
  all.trained = write_lines(kept.first(trained), data, writer, all);
  write_lines(kept.subspan(trained), data, writer, all);
  all.documents = writer.finish();
  return all;
}

}  // namespace axonn
