#pragma once

#include <atomic>
#include <string>

#include "axonn/data/corpus/tokens/token_file.h"

namespace axonn {

/// A token file that another process still writes, front to back. The file has its full size from
/// the beginning. PATH.written has a line "COUNT PID", the tokens that are in it and the process
/// that writes it, or "COUNT PID FAULT" once no more will come. Reading waits for its tokens.
class GrowingTokens : public TokenSource {
 public:
  /// Whether there is such a line beside the file.
  static bool recognises(const std::string& path);
  /// Throws UsageError as TokenFile does.
  GrowingTokens(const std::string& path, RawTokens raw)
      : file_(path, raw), state_path_(path + ".written") {}

  std::int64_t size() const override { return file_.size(); }
  std::string name() const override { return file_.name(); }
  bool grows() const override { return true; }

 private:
  /// Throws UsageError, with the fault, if they will not come.
  void wait_for(std::int64_t count) const;
  void read_valid(std::int64_t begin, std::span<std::int32_t> tokens) const override;

  TokenFile file_;
  std::string state_path_;
  mutable std::atomic<std::int64_t> written_ = 0;  // tokens that were there when last asked
};

}  // namespace axonn
