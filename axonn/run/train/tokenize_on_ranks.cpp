#include "axonn/run/train/tokenize_on_ranks.h"

#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <span>

#include "axonn/data/corpus/tokens/token_file.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/files.h"
#include "axonn/ranks/comm/texts.h"

namespace axonn {

namespace {

/// Facts for rank 0 about the tokens that a rank has made.
struct MadePart {
  std::int64_t tokens = 0;
  std::vector<std::int64_t> ends = {};  ///< in tokens, of the documents that end in the part
};

std::string part_path(const std::string& folder, int rank) {
  return concat(folder, "/part-", rank);
}

MadePart make_part(const TokenizeInput& input, const std::string& path,
                   const TokenizeOptions& options) {
  MadePart part;
  TokenWriter writer(path, input.tokenizer->vocab_size());
  tokenize(input.files, *input.tokenizer,
           {.append =
                [&](std::span<const std::int32_t> tokens) {
                  writer.append(tokens);
                  part.tokens += std::ssize(tokens);
                },
            .end_document = [&] { part.ends.push_back(part.tokens); }},
           options);
  writer.finish();
  return part;
}

/// Appends the tokens of a part to the output, and ends its documents.
void append_part(TokenWriter& writer, const std::string& path, const MadePart& part,
                 const std::function<void()>& progress) {
  constexpr std::int64_t kTokens = 1 << 20;  // at a time
  if (part.tokens == 0) {
    for (std::size_t i = 0; i < part.ends.size(); ++i) writer.end_document();
    return;
  }
  const TokenFile file(path);
  if (file.size() != part.tokens)
    refuse(path, " has ", file.size(), " tokens, not the ", part.tokens,
           " that its rank has written; the ranks must share the file system of the output");
  std::vector<std::int32_t> tokens;
  auto end = part.ends.begin();
  for (std::int64_t at = 0; at < part.tokens;) {
    tokens.resize(std::min(kTokens, part.tokens - at));
    file.read(at, tokens);
    std::span<const std::int32_t> rest = tokens;
    for (; end != part.ends.end() && *end <= at + std::ssize(rest); ++end) {
      writer.append(rest.first(*end - at));
      writer.end_document();
      rest = rest.subspan(*end - at);
      at = *end;
    }
    writer.append(rest);
    at += std::ssize(rest);
    progress();
  }
}

/// Rank 0 gets the parts of all ranks. Collective.
std::vector<MadePart> gathered(Communicator& world, MadePart mine) {
  std::array<std::int64_t, 2> sizes{mine.tokens, std::ssize(mine.ends)};
  std::vector<std::int64_t> all(sizes.size() * world.size());
  world.all_gather(buffer(std::span(all)), buffer(std::span<std::int64_t>(sizes)), "tokens").wait();
  std::vector<MadePart> parts(world.rank() == 0 ? world.size() : 0);
  for (int rank = 0; rank < world.size(); ++rank) {
    const std::int64_t ends = all[2 * rank + 1];
    if (world.rank() == 0) {
      parts[rank].tokens = all[2 * rank];
      parts[rank].ends.resize(ends);
      if (rank == 0)
        parts[0].ends = std::move(mine.ends);
      else if (ends > 0)
        world.recv(buffer(std::span(parts[rank].ends)), rank, "documents").wait();
    } else if (rank == world.rank() && ends > 0) {
      world.send(buffer(std::span(mine.ends)), 0, "documents").wait();
    }
  }
  return parts;
}

}  // namespace

TokenizeProgress tokenize_on_ranks(Communicator& world, const std::string& tokenizer,
                                   const std::vector<std::string>& text, const std::string& output,
                                   const TokenizeOptions& options) {
  if (world.size() == 1) return tokenize_files(tokenizer, text, output, options);
  const TokenizeInput input = tokenize_input(tokenizer, text, output);
  const std::string asked = "tokenizing";
  TokenizeOptions mine = options;
  mine.part = world.rank();
  mine.parts = world.size();
  mine.report = [&](const TokenizeProgress& progress) {
    world.note_progress();
    // Rank 0 has the first part; the others have about as much.
    if (world.rank() == 0 && options.report)
      options.report({std::min(progress.bytes * world.size(), progress.total_bytes),
                      progress.total_bytes, progress.tokens * world.size()});
  };
  std::optional<TokenWriter> writer;  // first, so that a bad output is found at once
  std::optional<TemporaryFolder> folder;
  agree(world, asked, fault_of([&] {
          if (world.rank() != 0) return;
          writer.emplace(output, input.tokenizer->vocab_size());
          folder.emplace(output + ".parts");
        }));
  const std::string parts = broadcast_text(world, folder ? folder->path() : "", 0);
  MadePart part;
  agree(world, asked,
        fault_of([&] { part = make_part(input, part_path(parts, world.rank()), mine); }));
  const std::vector<MadePart> all = gathered(world, std::move(part));
  std::int64_t tokens = 0, documents = 0;
  for (const MadePart& one : all) {
    tokens += one.tokens;
    documents += std::ssize(one.ends);
  }
  agree(world, asked, fault_of([&] {
          if (world.rank() != 0) return;
          for (int rank = 0; rank < world.size(); ++rank)
            append_part(*writer, part_path(parts, rank), all[rank], [&] { world.note_progress(); });
          need_text(input, tokens, documents, options.ends);
          writer->finish();
        }));
  world.broadcast(buffer(std::span(&tokens, 1)), 0, "tokens").wait();
  std::int64_t bytes = 0;
  for (const std::string& file : input.files) bytes += InputFile(file).bytes();
  return {.bytes = bytes, .total_bytes = bytes, .tokens = tokens};
}

}  // namespace axonn
