#pragma once

#include <string>
#include <string_view>

#include "axonn/data/corpus/parquet/metadata.h"

namespace axonn::parquet {

/// Appends a column's value, in the form of PageValues::next(), as JSON: numbers and flags; text;
/// dates and times in the forms of ISO 8601 (2026-11-26, 14:05:00.25, 2026-11-26T14:05:00);
/// decimals with all digits; UUIDs with hyphens; null for NaN and infinity. Bytes without a meaning
/// are text if they are UTF-8, else {"bytes": N}. Throws Damage for a value of another width than
/// its type.
void append_json_value(const Node& column, std::string_view value, std::string& to);

}  // namespace axonn::parquet
