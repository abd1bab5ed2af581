#include "axonn/data/token_cache.h"

#include <filesystem>
#include <utility>

#include "axonn/base/check.h"
#include "axonn/base/files.h"
#include "axonn/base/hash.h"
#include "axonn/base/random.h"
#include "axonn/data/token_file.h"
#include "axonn/data/token_writer.h"

namespace axonn {

namespace fs = std::filesystem;

namespace {

// Part of every cache file's name: raise it when tokenize() gives other tokens for the same text.
constexpr int kTokenCacheVersion = 1;

std::string name_of(const std::vector<std::string>& files) {
  if (files.size() == 1) return files.front();
  return concat(files.front(), " and ", files.size() - 1, " more");
}

}  // namespace

std::string cache_key(const std::vector<std::string>& files, const std::string& how) {
  std::error_code error;  // ignored: opening a missing file gives a better message
  std::string key = how;
  for (const std::string& file : files)
    key +=
        concat('\n', fs::weakly_canonical(file, error).string(), '\n', fs::file_size(file, error),
               '\n', fs::last_write_time(file, error).time_since_epoch().count());
  return hex_of(hash_text(key));
}

std::shared_ptr<const TokenSource> tokenize_in_memory(const std::vector<std::string>& files,
                                                      const Tokenizer& tokenizer,
                                                      const TokenizeReport& report) {
  std::vector<std::int32_t> all;
  const TokenSink sink{[&](std::span<const std::int32_t> tokens) {
                         all.insert(all.end(), tokens.begin(), tokens.end());
                       },
                       [] {}};
  tokenize(files, tokenizer, sink, {.report = report});
  return std::make_shared<MemoryTokens>(name_of(files), std::move(all));
}

std::shared_ptr<const TokenSource> tokenize_cached(const std::vector<std::string>& files,
                                                   const Tokenizer& tokenizer,
                                                   const std::string& folder,
                                                   const TokenizeReport& report) {
  make_folders(folder);
  // Megatron's format, because it has no limit on the tokens.
  const std::string prefix =
      folder + "/tokens-" +
      cache_key(files, concat(kTokenCacheVersion, ' ', tokenizer.fingerprint()));
  const auto make = [&] {
    const auto writer = make_token_writer(prefix, tokenizer.vocab_size());
    tokenize(files, tokenizer, sink_of(*writer), {.report = report});
    writer->finish();
  };
  return open_cached(
      prefix + ".idx", [&] { return std::make_shared<TokenFile>(prefix); }, make);
}

}  // namespace axonn
