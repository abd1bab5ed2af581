#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "axonn/data/corpus/parquet/bytes.h"
#include "axonn/data/corpus/parquet/column_reader.h"

namespace axonn::parquet {

/// Reads the rows of a Parquet file front to back, as JSON objects with the names of the columns.
/// What is null is left out, but not in lists. Lists and structures may nest; maps are objects.
/// Memory: for each column a page and its dictionary.
class RowReader {
 public:
  /// Reads the columns whose names fit, or all. `file` must outlive it. Throws UsageError that
  /// names the file if it is damaged or cannot be read, here and in each call.
  RowReader(const InputFile& file, const std::function<bool(std::string_view)>& wanted);

  const Metadata& metadata() const { return metadata_; }
  std::int64_t row() const { return row_; }  ///< rows before the one in front
  bool at_end() const { return row_ == metadata_.rows; }

  /// Appends the row in front as an object on a line, and its end.
  void read(std::string& to);
  /// Moves on to a row. Opens its row group and passes over the rows before it there.
  void go_to(std::int64_t row);

 private:
  void open_group();
  void pass_row();
  void append_row(std::string& to);
  void append(const Node& node, std::string& to);
  void append_present(const Node& node, std::string& to);
  /// The items of a list; each is the repeated node itself, or what it has in it.
  void append_list(const Node& repeated, bool is_item, std::string& to);
  void append_map(const Node& repeated, std::string& to);
  void append_member(const Node& node, std::string& to);
  bool is_null(const Node& node);
  /// The first of a node's columns, whose levels say what is there.
  ColumnReader& front(const Node& node) { return *columns_[node.first]; }
  void advance(const Node& node);
  [[noreturn]] void damaged(const Damage& damage) const;

  const InputFile& file_;
  Metadata metadata_;
  std::vector<const Node*> fields_;  // of the schema, that are read
  std::vector<const Node*> leaves_;  // all columns
  std::vector<std::unique_ptr<ColumnReader>> columns_;
  std::size_t group_ = 0;
  std::int64_t row_ = 0, group_end_ = 0;
};

}  // namespace axonn::parquet
