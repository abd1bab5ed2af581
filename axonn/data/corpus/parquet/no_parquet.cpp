#include "axonn/data/corpus/files/tables.h"
#include "axonn/foundation/base/check.h"

namespace axonn {

std::unique_ptr<TextBytes> parquet_lines(InputFile file, const ColumnChoice&) {
  refuse(
      file.path(), " is a Parquet file, and this program was built without the libraries that ",
      "it needs (Debian: libsnappy-dev liblz4-dev libbrotli-dev); install them and build again, ",
      "or write its rows as JSON lines: duckdb -c \"COPY (FROM '", file.path(), "') TO '",
      file.path(), ".jsonl'\"");
}

}  // namespace axonn
