#include "axonn/data/corpus/parquet/codecs.h"

#include <brotli/decode.h>
#include <lz4.h>
#include <snappy-c.h>
#include <zlib.h>
#include <zstd.h>

#include "axonn/data/corpus/parquet/bytes.h"

namespace axonn::parquet {

namespace {

bool ungzip(std::string_view page, std::string& out) {
  constexpr int kGzipOrZlib = 15 + 32;
  z_stream state{};
  if (inflateInit2(&state, kGzipOrZlib) != Z_OK) return false;
  state.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(page.data()));
  state.avail_in = static_cast<uInt>(page.size());
  state.next_out = reinterpret_cast<Bytef*>(out.data());
  state.avail_out = static_cast<uInt>(out.size());
  int status = Z_STREAM_END;
  do {  // members, one after the other
    status = inflate(&state, Z_FINISH);
  } while (status == Z_STREAM_END && state.avail_in > 0 && inflateReset(&state) == Z_OK);
  const bool whole = status == Z_STREAM_END && state.avail_out == 0;
  inflateEnd(&state);
  return whole;
}

bool unlz4(std::string_view page, char* out, std::size_t bytes) {
  return LZ4_decompress_safe(page.data(), out, static_cast<int>(page.size()),
                             static_cast<int>(bytes)) == static_cast<int>(bytes);
}

std::uint32_t big_endian(std::string_view bytes) {
  std::uint32_t value = 0;
  for (const unsigned char byte : bytes.substr(0, 4)) value = value << 8 | byte;
  return value;
}

/// Blocks as Hadoop writes them: their bytes before and after compression, then the block.
bool unlz4_hadoop(std::string_view page, std::string& out) {
  std::size_t made = 0;
  while (page.size() >= 8) {
    const std::size_t bytes = big_endian(page), compressed = big_endian(page.substr(4));
    page.remove_prefix(8);
    if (compressed > page.size() || bytes > out.size() - made) return false;
    if (!unlz4(page.substr(0, compressed), out.data() + made, bytes)) return false;
    made += bytes;
    page.remove_prefix(compressed);
  }
  return page.empty() && made == out.size();
}

bool decompress_into(Codec codec, std::string_view page, std::string& out) {
  std::size_t bytes = out.size();
  switch (codec) {
    case Codec::none:
      out = page;
      return out.size() == bytes;
    case Codec::gzip:
      return ungzip(page, out);
    case Codec::snappy:
      return snappy_uncompressed_length(page.data(), page.size(), &bytes) == SNAPPY_OK &&
             bytes == out.size() &&
             snappy_uncompress(page.data(), page.size(), out.data(), &bytes) == SNAPPY_OK;
    case Codec::zstandard:
      return ZSTD_decompress(out.data(), out.size(), page.data(), page.size()) == bytes;
    case Codec::brotli:
      return BrotliDecoderDecompress(
                 page.size(), reinterpret_cast<const std::uint8_t*>(page.data()), &bytes,
                 reinterpret_cast<std::uint8_t*>(out.data())) == BROTLI_DECODER_RESULT_SUCCESS &&
             bytes == out.size();
    case Codec::lz4:
      return unlz4(page, out.data(), bytes);
    // Some programs wrote plain blocks under this number.
    case Codec::lz4_hadoop:
      return unlz4_hadoop(page, out) || unlz4(page, out.data(), bytes);
    case Codec::lzo:
      throw Damage{"it is compressed with LZO, which is not read; write it with zstd"};
  }
  throw Damage{"it is compressed in an unknown way"};
}

}  // namespace

std::string decompress(Codec codec, std::string_view page, std::size_t bytes) {
  std::string out(bytes, '\0');
  if (!decompress_into(codec, page, out)) throw Damage{"a page that does not decompress"};
  return out;
}

void check_page(std::string_view page, std::uint32_t checksum) {
  const uLong found =
      crc32(0, reinterpret_cast<const Bytef*>(page.data()), static_cast<uInt>(page.size()));
  if (found != checksum) throw Damage{"a page that does not have its checksum"};
}

}  // namespace axonn::parquet
