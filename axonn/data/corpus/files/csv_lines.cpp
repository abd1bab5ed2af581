#include <algorithm>
#include <string>
#include <vector>

#include "axonn/data/corpus/files/json_text.h"
#include "axonn/data/corpus/files/tables.h"
#include "axonn/foundation/base/check.h"

namespace axonn {

namespace {

constexpr std::size_t kMostBytesARow = std::size_t{1} << 30;

/// A value of a row, and whether it stood in quotes.
struct CsvValue {
  std::string text = {};
  bool quoted = false;
};

class CsvLines final : public RowLines {
 public:
  CsvLines(std::unique_ptr<TextBytes> text, char separator, const ColumnChoice& columns)
      : RowLines(InputFile(text->file().path())), text_(std::move(text)), separator_(separator) {
    constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
    if (!next_row()) refuse(file_.path(), " is empty; its first row must name the columns");
    for (CsvValue& value : row_) {
      if (names_.empty() && value.text.starts_with(kByteOrderMark)) value.text.erase(0, 3);
      if (std::ranges::find(names_, value.text) != names_.end())
        refuse(file_.path(), " has two columns with the name \"", value.text, "\"; rename one");
      names_.push_back(value.text);
      wanted_.push_back(!columns || columns(value.text));
    }
  }

  std::int64_t position() const override { return text_->position(); }

 private:
  bool next_line(std::string& to) override {
    do {
      if (!next_row()) return false;
      ++rows_;
    } while (row_.size() == 1 && row_[0].text.empty() && !row_[0].quoted);  // a blank line
    if (row_.size() > names_.size())
      refuse(file_.path(), ": row ", rows_, " has ", row_.size(), " values for ", names_.size(),
             " columns; put values with a separator or a quote in them into quotes");
    to += '{';
    for (std::size_t i = 0; i < row_.size(); ++i) {
      if (!wanted_[i] || (row_[i].text.empty() && !row_[i].quoted)) continue;
      if (to.back() != '{') to += ", ";
      append_json_text(names_[i], to);
      to += ": ";
      append_json_text(row_[i].text, to);
    }
    to += "}\n";
    return true;
  }

  /// Reads the values of the next row. Returns false at the end.
  bool next_row() {
    row_.assign(1, {});
    bool any = false;
    std::size_t bytes = 0;
    for (int c = next(); c >= 0; c = next()) {
      any = true;
      if (++bytes > kMostBytesARow) fault("has more than 1 GiB");
      CsvValue& value = row_.back();
      if (c == '"' && value.text.empty() && !value.quoted) {
        value.quoted = true;
        read_quoted(value.text, bytes);
      } else if (c == separator_) {
        row_.emplace_back();
      } else if (c == '\n' || (c == '\r' && peek() == '\n')) {
        if (c == '\r') next();
        return true;
      } else if (value.quoted) {
        fault("has text behind the quote that ends a value; write a quote inside of quotes twice");
      } else {
        value.text += static_cast<char>(c);
      }
    }
    return any;
  }

  void read_quoted(std::string& to, std::size_t& bytes) {
    for (int c = next(); c >= 0; c = next()) {
      if (++bytes > kMostBytesARow) fault("has more than 1 GiB");
      if (c == '"') {
        if (peek() != '"') return;
        next();
      }
      to += static_cast<char>(c);
    }
    fault("has a quote that does not end");
  }

  [[noreturn]] void fault(const char* what) const {
    refuse(file_.path(), ": row ", rows_ + 1, ' ', what);
  }

  int peek() {
    constexpr std::size_t kAtOnce = std::size_t{64} << 10;
    if (used_ == buffer_.size()) {
      buffer_.resize(kAtOnce);
      buffer_.resize(text_->read(buffer_));
      used_ = 0;
    }
    return used_ < buffer_.size() ? static_cast<unsigned char>(buffer_[used_]) : -1;
  }
  int next() {
    const int c = peek();
    if (c >= 0) ++used_;
    return c;
  }

  std::unique_ptr<TextBytes> text_;
  char separator_;
  std::vector<std::string> names_;
  std::vector<bool> wanted_;
  std::vector<CsvValue> row_;
  std::int64_t rows_ = 0;  // that were read, without the names
  std::string buffer_;
  std::size_t used_ = 0;  // of buffer_
};

}  // namespace

std::unique_ptr<TextBytes> csv_lines(std::unique_ptr<TextBytes> text, char separator,
                                     const ColumnChoice& columns) {
  return std::make_unique<CsvLines>(std::move(text), separator, columns);
}

}  // namespace axonn
