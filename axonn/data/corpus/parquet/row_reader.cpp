#include "axonn/data/corpus/parquet/row_reader.h"

#include "axonn/data/corpus/files/json_text.h"
#include "axonn/data/corpus/parquet/json_values.h"

namespace axonn::parquet {

namespace {

void add_leaves(const Node& node, std::vector<const Node*>& leaves) {
  if (node.is_column()) leaves.push_back(&node);
  for (const Node& child : node.children) add_leaves(child, leaves);
}

bool is_repeated(const Node& node) { return node.repetition == Node::Repetition::repeated; }

/// The repeated node of a list or map, whose items are those of the list.
const Node* items_of(const Node& node) {
  const bool one = node.children.size() == 1 && is_repeated(node.children[0]);
  return one ? &node.children[0] : nullptr;
}

/// Whether the repeated node is itself an item, as older programs wrote lists, and not a group with
/// the item in it. The rules of Parquet's LogicalTypes.md.
bool is_item(const Node& list, const Node& repeated) {
  return repeated.children.size() != 1 || repeated.name == "array" ||
         repeated.name == list.name + "_tuple";
}

}  // namespace

RowReader::RowReader(const InputFile& file, const std::function<bool(std::string_view)>& wanted)
    : file_(file), metadata_(read_metadata(file)) {
  add_leaves(metadata_.schema, leaves_);
  for (const Node& field : metadata_.schema.children)
    if (!wanted || wanted(field.name)) fields_.push_back(&field);
}

void RowReader::damaged(const Damage& damage) const {
  refuse(file_.path(), ':', row_ + 1, ": the file is damaged, or no Parquet file: ", damage.what,
         "; copy or download it again");
}

void RowReader::open_group() {
  while (row_ >= group_end_) group_end_ += metadata_.groups.at(group_++).rows;
  const RowGroup& group = metadata_.groups[group_ - 1];
  columns_.clear();
  columns_.resize(leaves_.size());
  for (const Node* field : fields_)
    for (std::size_t c = field->first; c < field->end; ++c)
      columns_[c] = std::make_unique<ColumnReader>(file_, *leaves_[c], group.chunks[c]);
}

void RowReader::read(std::string& to) try {
  if (row_ >= group_end_) open_group();
  append_row(to);
  ++row_;
} catch (const Damage& damage) {
  damaged(damage);
}

void RowReader::go_to(std::int64_t row) try {
  std::int64_t begin = 0;
  group_ = 0;
  for (const RowGroup& group : metadata_.groups) {
    if (row < begin + group.rows) break;
    begin += group.rows;
    ++group_;
  }
  row_ = group_end_ = begin;
  if (row > row_) open_group();
  for (; row_ < row; ++row_) pass_row();
} catch (const Damage& damage) {
  damaged(damage);
}

void RowReader::pass_row() {
  for (const auto& column : columns_) {
    if (!column) continue;
    do column->advance();
    while (column->continues_list(1));
  }
}

void RowReader::append_row(std::string& to) {
  for (const auto& column : columns_)
    if (column && column->repetition() != 0) throw Damage{"a row that begins inside a list"};
  to += '{';
  for (const Node* field : fields_) append_member(*field, to);
  to += "}\n";
}

bool RowReader::is_null(const Node& node) {
  return node.repetition == Node::Repetition::optional &&
         front(node).definition() < node.definition;
}

void RowReader::advance(const Node& node) {
  for (std::size_t c = node.first; c < node.end; ++c) columns_[c]->advance();
}

void RowReader::append_member(const Node& node, std::string& to) {
  if (is_null(node)) return advance(node);
  if (to.back() != '{') to += ", ";
  append_json_text(node.name, to);
  to += ": ";
  append(node, to);
}

void RowReader::append(const Node& node, std::string& to) {
  if (is_repeated(node)) return append_list(node, true, to);  // without a group around it
  if (!is_null(node)) return append_present(node, to);
  advance(node);
  to += "null";
}

void RowReader::append_present(const Node& node, std::string& to) {
  if (node.is_column()) {
    append_json_value(node, front(node).value(), to);
    return front(node).advance();
  }
  const Node* items = items_of(node);
  if (items && node.meaning == Meaning::list) return append_list(*items, is_item(node, *items), to);
  if (items && node.meaning == Meaning::map && items->children.size() == 2)
    return append_map(*items, to);
  to += '{';
  for (const Node& child : node.children) append_member(child, to);
  to += '}';
}

void RowReader::append_list(const Node& repeated, bool is_item, std::string& to) {
  to += '[';
  if (front(repeated).definition() < repeated.definition) {
    advance(repeated);
  } else {
    do {
      if (to.back() != '[') to += ", ";
      is_item ? append_present(repeated, to) : append(repeated.children[0], to);
    } while (front(repeated).continues_list(repeated.repetition_level));
  }
  to += ']';
}

void RowReader::append_map(const Node& repeated, std::string& to) {
  to += '{';
  if (front(repeated).definition() < repeated.definition) {
    advance(repeated);
  } else {
    do {
      if (to.back() != '{') to += ", ";
      std::string key;
      append(repeated.children[0], key);
      key.starts_with('"') ? void(to += key) : append_json_text(key, to);
      to += ": ";
      append(repeated.children[1], to);
    } while (front(repeated).continues_list(repeated.repetition_level));
  }
  to += '}';
}

}  // namespace axonn::parquet
