#pragma once

#include <memory>

#include "axonn/data/corpus/files/text_bytes.h"
#include "axonn/data/corpus/files/text_reader.h"

namespace axonn {

/// The rows of a Parquet file as JSON objects, one on each line, with the names of the columns
/// (parquet/row_reader.h). Positions are rows. Throws UsageError as RowReader, and if this program
/// was built without the libraries that Parquet needs.
std::unique_ptr<TextBytes> parquet_lines(InputFile file, const ColumnChoice& columns);

/// The rows of comma-separated values (RFC 4180) as JSON objects, one on each line. The first row
/// has the names of the columns; all values are strings, and empty ones without quotes are left
/// out. Throws UsageError, with the row, for a quote that does not end, and for a row of more
/// values than there are names.
std::unique_ptr<TextBytes> csv_lines(std::unique_ptr<TextBytes> text, char separator,
                                     const ColumnChoice& columns);

}  // namespace axonn
