#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "axonn/data/corpus/parquet/encodings.h"
#include "axonn/data/corpus/parquet/metadata.h"

namespace axonn::parquet {

/// Reads a column of a row group front to back. Memory: a page and the dictionary. An entry is a
/// value, or a null or an empty list at some level above it. Throws Damage.
class ColumnReader {
 public:
  /// `file` and `column` must outlive it.
  ColumnReader(const InputFile& file, const Node& column, const ColumnChunk& chunk);

  /// The levels of the entry in front.
  int repetition();
  int definition();
  /// Its value; it must have one. Valid until advance().
  std::string_view value();
  void advance();
  /// Whether the entry in front goes on with the list that begins at this level, or one in it, and
  /// is not the next row's.
  bool continues_list(int level);

 private:
  void need_entry();
  void next_page();
  PageHead next_head();
  void read_dictionary(const PageHead& head, std::string_view page);
  void begin_data(const PageHead& head, std::string_view page);
  void begin_data2(const PageHead& head, std::string_view page);

  const InputFile& file_;
  const Node& column_;
  ColumnChunk chunk_;
  std::int64_t at_, end_;     // in the file
  std::int64_t entries_ = 0;  // that the page still has, with the one in front
  std::int64_t seen_ = 0;     // of the column, in pages so far
  std::string page_, dictionary_page_;
  Dictionary dictionary_;
  RunDecoder repetitions_, definitions_;
  std::unique_ptr<PageValues> values_;
  bool has_entry_ = false, has_value_ = false;
  int repetition_ = 0, definition_ = 0;
  std::string_view value_;
};

}  // namespace axonn::parquet
