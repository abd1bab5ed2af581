#include "axonn/data/corpus/parquet/column_reader.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <span>

#include "axonn/data/corpus/parquet/bytes.h"
#include "axonn/data/corpus/parquet/codecs.h"

namespace axonn::parquet {

namespace {

constexpr std::int64_t kHeadBytes = 4096, kLargestPage = std::int64_t{1} << 30;

int bits_for(int level) { return static_cast<int>(std::bit_width(static_cast<unsigned>(level))); }

/// Levels at the front of a page, behind their length. Takes them.
RunDecoder take_levels(std::string_view& page, int most, Encoding encoding) {
  if (most == 0) return {};
  if (encoding != Encoding::runs)
    throw Damage{"levels in an encoding of old files, which is not read"};
  std::uint32_t bytes = 0;
  if (page.size() < sizeof bytes) throw Damage{"a page without levels"};
  std::memcpy(&bytes, page.data(), sizeof bytes);
  page.remove_prefix(sizeof bytes);
  if (bytes > page.size()) throw Damage{"levels longer than their page"};
  const RunDecoder levels(page.substr(0, bytes), bits_for(most));
  page.remove_prefix(bytes);
  return levels;
}

}  // namespace

ColumnReader::ColumnReader(const InputFile& file, const Node& column, const ColumnChunk& chunk)
    : file_(file), column_(column), chunk_(chunk), at_(chunk.begin), end_(at_ + chunk.bytes) {
  if (chunk.type != column.type) throw Damage{"a column of another type than the schema's"};
}

int ColumnReader::repetition() {
  need_entry();
  return repetition_;
}

int ColumnReader::definition() {
  need_entry();
  return definition_;
}

std::string_view ColumnReader::value() {
  need_entry();
  if (!has_value_) value_ = values_->next();
  has_value_ = true;
  return value_;
}

void ColumnReader::advance() {
  if (definition() == column_.definition) value();
  has_entry_ = has_value_ = false;
  --entries_;
}

bool ColumnReader::continues_list(int level) {
  const bool at_end = !has_entry_ && entries_ == 0 && seen_ >= chunk_.values;
  return !at_end && repetition() >= level;
}

void ColumnReader::need_entry() {
  if (has_entry_) return;
  while (entries_ == 0) next_page();
  repetition_ = column_.repetition_level ? static_cast<int>(repetitions_.next()) : 0;
  definition_ = column_.definition ? static_cast<int>(definitions_.next()) : 0;
  if (repetition_ > column_.repetition_level || definition_ > column_.definition)
    throw Damage{"an impossible level"};
  has_entry_ = true;
}

PageHead ColumnReader::next_head() {
  for (std::int64_t wanted = kHeadBytes;; wanted *= 8) {
    std::string bytes(static_cast<std::size_t>(std::min(wanted, end_ - at_)), '\0');
    file_.read(at_, std::as_writable_bytes(std::span(bytes)));
    PageHead head;
    try {
      at_ += static_cast<std::int64_t>(read_page_head(bytes, head));
    } catch (const Damage&) {
      if (wanted >= end_ - at_) throw;
      continue;
    }
    if (head.compressed < 0 || head.compressed > end_ - at_ || head.uncompressed < 0 ||
        head.uncompressed > kLargestPage || head.values < 0)
      throw Damage{"a page of an impossible size"};
    return head;
  }
}

void ColumnReader::next_page() {
  if (at_ >= end_ || seen_ >= chunk_.values) throw Damage{"a column that ends before its rows"};
  const PageHead head = next_head();
  std::string stored(static_cast<std::size_t>(head.compressed), '\0');
  file_.read(at_, std::as_writable_bytes(std::span(stored)));
  at_ += head.compressed;
  if (head.has_checksum) check_page(stored, head.checksum);
  switch (head.kind) {
    case PageHead::Kind::index:
      return;
    case PageHead::Kind::dictionary:
      read_dictionary(head, stored);
      return;
    case PageHead::Kind::data:
      begin_data(head, stored);
      break;
    case PageHead::Kind::data2:
      begin_data2(head, stored);
      break;
    default:
      throw Damage{"a page of an unknown kind"};
  }
  entries_ = head.values;
  seen_ += head.values;
}

void ColumnReader::read_dictionary(const PageHead& head, std::string_view page) {
  dictionary_page_ = decompress(chunk_.codec, page, static_cast<std::size_t>(head.uncompressed));
  dictionary_.clear();
  if (column_.type == Physical::boolean) throw Damage{"a dictionary of flags"};
  const auto values = decode_values(Encoding::plain, column_, dictionary_page_, {});
  for (std::int64_t i = 0; i < head.values; ++i) dictionary_.push_back(values->next());
}

void ColumnReader::begin_data(const PageHead& head, std::string_view page) {
  page_ = decompress(chunk_.codec, page, static_cast<std::size_t>(head.uncompressed));
  std::string_view rest = page_;
  repetitions_ = take_levels(rest, column_.repetition_level, head.repetition_encoding);
  definitions_ = take_levels(rest, column_.definition, head.definition_encoding);
  values_ = decode_values(head.encoding, column_, rest, dictionary_);
}

void ColumnReader::begin_data2(const PageHead& head, std::string_view page) {
  const std::int64_t repetition = head.repetition_bytes, definition = head.definition_bytes,
                     levels = repetition + definition;
  if (repetition < 0 || definition < 0 || levels > std::ssize(page) || levels > head.uncompressed)
    throw Damage{"levels longer than their page"};
  page_ = page.substr(0, static_cast<std::size_t>(levels));
  page.remove_prefix(page_.size());
  const auto bytes = static_cast<std::size_t>(head.uncompressed - levels);
  // Writers leave out the compression of no bytes.
  const Codec codec = head.is_compressed && !page.empty() ? chunk_.codec : Codec::none;
  page_ += decompress(codec, page, bytes);
  const std::string_view all = page_;
  repetitions_ = RunDecoder(all.substr(0, repetition), bits_for(column_.repetition_level));
  definitions_ = RunDecoder(all.substr(repetition, definition), bits_for(column_.definition));
  values_ = decode_values(head.encoding, column_, all.substr(levels), dictionary_);
}

}  // namespace axonn::parquet
