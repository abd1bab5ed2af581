#pragma once

#include <string>
#include <string_view>

#include "axonn/data/corpus/parquet/metadata.h"

namespace axonn::parquet {

/// The `bytes` that a page has without its compression. Throws Damage if it is damaged or has
/// another number of bytes, and for LZO.
std::string decompress(Codec codec, std::string_view page, std::size_t bytes);

/// Throws Damage unless these bytes have this CRC-32.
void check_page(std::string_view page, std::uint32_t checksum);

}  // namespace axonn::parquet
