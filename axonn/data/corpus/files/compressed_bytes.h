#pragma once

#include <memory>

#include "axonn/data/corpus/files/text_bytes.h"

namespace axonn {

enum class Compression { none, gzip, zstandard, bzip2, xz };

/// How a file is compressed by its first bytes; a text never begins like that.
Compression compression_of(const InputFile& file);

/// The text of a file: all its gzip members, Zstandard frames, or streams of bzip2 or xz, one after
/// the other. Memory: the window of the file, at most 2 GiB. Reading throws UsageError that names
/// the file and the byte in it if it is damaged or cut short.
std::unique_ptr<TextBytes> decompressed(InputFile file, Compression how);

}  // namespace axonn
