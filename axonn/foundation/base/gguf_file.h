#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "axonn/foundation/base/files.h"

namespace axonn {

/// The types of the values of keys; the numbers are the format's.
enum class GgufValueType : std::uint32_t {
  u8,
  i8,
  u16,
  i16,
  u32,
  i32,
  f32,
  boolean,
  text,
  list,
  u64,
  i64,
  f64
};

/// A GGUF file to read, of version 2 or 3: its keys with their values, and where its tensors lie.
/// Source: ggml-org/ggml, docs/gguf.md.
class GgufFile {
 public:
  /// Integers of all widths and booleans; numbers; text; lists of these, of which only the texts
  /// and numbers are kept.
  using Value = std::variant<std::int64_t, double, std::string, std::vector<std::int64_t>,
                             std::vector<double>, std::vector<std::string>>;

  struct Tensor {
    std::uint32_t type = 0;           ///< the format's number
    std::vector<std::int64_t> sizes;  ///< the fastest first
    std::int64_t begin = 0;           ///< in the file
  };

  /// Reads everything but the tensors' data. Throws UsageError, with the file and the fault, for a
  /// file of another kind or version, and if it is damaged or cut short.
  explicit GgufFile(const std::string& path);

  const std::string& path() const { return file_.path(); }
  std::int64_t bytes() const { return file_.bytes(); }
  const std::map<std::string, Value, std::less<>>& keys() const { return keys_; }
  const std::map<std::string, Tensor, std::less<>>& tensors() const { return tensors_; }

  // The value of a key; nothing if there is no such key. Throw UsageError if it is of another kind.

  std::optional<std::int64_t> integer(std::string_view key) const;
  std::optional<double> number(std::string_view key) const;  ///< or an integer
  std::optional<std::string> text(std::string_view key) const;
  /// Null: there is no such key.
  const std::vector<std::string>* texts(std::string_view key) const;
  const std::vector<std::int64_t>* integers(std::string_view key) const;
  const std::vector<double>* numbers(std::string_view key) const;

  /// Fills `out` with bytes of the file. Throws UsageError if it cannot be read.
  void read(std::int64_t begin, std::span<std::byte> out) const { file_.read(begin, out); }

 private:
  InputFile file_;
  std::map<std::string, Value, std::less<>> keys_;
  std::map<std::string, Tensor, std::less<>> tensors_;
};

/// Whether there is such a file that begins with "GGUF".
bool begins_as_gguf(const std::string& path);
/// Whether a file is to be read as GGUF: one that begins so, or is named x.gguf.
bool is_gguf(const std::string& path);

}  // namespace axonn
