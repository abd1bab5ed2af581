#include <algorithm>

#include "axonn/data/corpus/files/tables.h"
#include "axonn/data/corpus/parquet/row_reader.h"

namespace axonn {

namespace {

class ParquetLines final : public RowLines {
 public:
  ParquetLines(InputFile file, const ColumnChoice& columns)
      : RowLines(std::move(file)), rows_(file_, columns) {}

  std::optional<std::int64_t> rows() const override { return rows_.metadata().rows; }
  bool go_to(std::int64_t row) override {
    if (row > rows_.metadata().rows) return false;
    rows_.go_to(row);
    return true;
  }
  std::int64_t row_after(std::int64_t byte) const override {
    std::int64_t row = 0;
    for (const parquet::RowGroup& group : rows_.metadata().groups) {
      if (group.chunks.front().begin >= byte) break;
      row += group.rows;
    }
    return row;
  }
  std::int64_t position() const override {
    const double part = static_cast<double>(rows_.row()) /
                        static_cast<double>(std::max<std::int64_t>(rows_.metadata().rows, 1));
    return static_cast<std::int64_t>(part * static_cast<double>(file_.bytes()));
  }

 private:
  bool next_line(std::string& to) override {
    if (rows_.at_end()) return false;
    rows_.read(to);
    return true;
  }

  parquet::RowReader rows_;
};

}  // namespace

std::unique_ptr<TextBytes> parquet_lines(InputFile file, const ColumnChoice& columns) {
  return std::make_unique<ParquetLines>(std::move(file), columns);
}

}  // namespace axonn
