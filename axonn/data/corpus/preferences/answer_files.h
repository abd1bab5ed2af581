#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "axonn/data/corpus/config.h"
#include "axonn/data/corpus/documents.h"
#include "axonn/data/corpus/files/jsonl.h"
#include "axonn/data/corpus/preferences/answer_lines.h"

namespace axonn {

/// Whether the first line of a file of answers has lists of messages. Throws as parse_pair() and
/// parse_labelled() do.
bool holds_message_answers(const std::string& file, const AnswerData& data);

/// The keys of a line of answers, and of its messages, that nothing reads.
std::vector<std::string> unread_answer_keys(const Line& line, const AnswerData& data,
                                            const std::optional<ChatTemplate>& chat);

struct AnswerDocuments {
  /// Two for each unit of a loss, numbers 2 n and 2 n + 1: the chosen and the rejected answer of a
  /// pair; or a labelled answer, and its prompt with the answer of another example.
  std::shared_ptr<const Documents> documents;
  std::vector<bool> good = {};  ///< the label of each unit; none for pairs
  std::int64_t left_out = 0;    ///< lines without a token of an answer within max_length
  std::int64_t trained = 0;     ///< documents that are not held out, the first ones
};

/// Encodes the lines of the files, also compressed ones and tables (text_reader.h), as documents,
/// by all cores. They stay in memory. With AnswerData::Kind::labels:
///
///   order   that of the lines; of pairs, in each thousand lines the good answers, then the bad
///           ones, as TRL takes them apart
///   others  in each block of examples, the answer of the one before, and the first has that of the
///           last one; a last block of a single example joins the one before
///
/// The last `held_out` of the lines, a fraction, become the last documents, apart from the others.
///
/// Throws UsageError, with "FILE:LINE", as parse_pair(), parse_labelled() and encode_answer() do,
/// if an answer has no token, if some lines are texts and others messages, and if there are fewer
/// than two labelled answers, or nothing that is not held out.
AnswerDocuments encode_answers(const std::vector<std::string>& files, const AnswerFormat& format,
                               const AnswerData& data, double held_out = 0);

}  // namespace axonn
