#include "axonn/data/tokenize.h"

#include <filesystem>
#include <optional>

#include "axonn/base/check.h"
#include "axonn/data/mapped_file.h"
#include "axonn/data/text_files.h"
#include "axonn/data/token_file.h"
#include "axonn/data/token_writer.h"

namespace axonn {

namespace {

constexpr std::size_t kPieceBytes = std::size_t{4} << 20;

void refuse_token_files(const std::vector<std::string>& files) {
  for (const std::string& file : files)
    if (TokenFile::recognises(file))
      refuse(file, " is a token file, not text; give it as data.tokens");
}

}  // namespace

TokenizeProgress tokenize(const std::vector<std::string>& files, const Tokenizer& tokenizer,
                          const TokenSink& sink, const TokenizeReport& report) {
  refuse_token_files(files);
  TokenizeProgress progress{};
  for (const std::string& path : files)
    progress.total_bytes += static_cast<std::int64_t>(MappedFile(path).text().size());
  std::vector<std::int32_t> tokens;
  for (const std::string& path : files) {
    const MappedFile file(path);
    std::optional<std::int32_t> last;
    for (std::string_view rest = file.text(); !rest.empty();) {
      const std::string_view piece = rest.substr(0, safe_cut(rest, kPieceBytes));
      tokens.clear();
      tokenizer.encode_into(piece, tokens);
      sink.append(tokens);
      last = tokens.back();
      rest.remove_prefix(piece.size());
      progress.bytes += static_cast<std::int64_t>(piece.size());
      progress.tokens += std::ssize(tokens);
      if (report) report(progress);
    }
    if (const auto end = tokenizer.end_of_text(); end && last != end) {
      sink.append({&*end, 1});
      ++progress.tokens;
    }
    sink.end_document();
  }
  return progress;
}

TokenizeProgress tokenize_files(const TokenizeJob& job, const TokenizeReport& report) {
  if (job.text.empty()) refuse("data tokenize needs --text FILE or a folder");
  if (job.output.empty()) refuse("data tokenize needs --output FILE.bin");
  const auto tokenizer = make_tokenizer(job.tokenizer);
  const auto files = text_files(job.text);
  for (const std::string& file : files)
    if (std::error_code error; std::filesystem::equivalent(file, job.output, error))
      refuse("the output ", job.output, " is one of the text files");
  const auto writer = make_token_writer(job.output, tokenizer->vocab_size());
  const TokenSink sink{[&](std::span<const std::int32_t> tokens) { writer->append(tokens); },
                       [&] { writer->end_document(); }};
  const TokenizeProgress result = tokenize(files, *tokenizer, sink, report);
  writer->finish();
  return result;
}

}  // namespace axonn
