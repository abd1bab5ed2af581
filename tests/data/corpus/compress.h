#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

#include <bzlib.h>
#include <lzma.h>
#include <zlib.h>
#include <zstd.h>

namespace axonn::test {

/// A member of gzip data with this text.
inline std::string gzip(const std::string& text) {
  z_stream state{};
  constexpr int kGzip = 15 + 16, kMemory = 8;  // zlib's code for gzip; its default
  deflateInit2(&state, Z_DEFAULT_COMPRESSION, Z_DEFLATED, kGzip, kMemory, Z_DEFAULT_STRATEGY);
  std::string made(deflateBound(&state, text.size()), '\0');
  state.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  state.avail_in = static_cast<uInt>(text.size());
  state.next_out = reinterpret_cast<Bytef*>(made.data());
  state.avail_out = static_cast<uInt>(made.size());
  if (deflate(&state, Z_FINISH) != Z_STREAM_END) throw std::runtime_error("gzip");
  made.resize(state.total_out);
  deflateEnd(&state);
  return made;
}

/// A frame of Zstandard data with this text and its checksum.
inline std::string zstandard(const std::string& text) {
  ZSTD_CCtx* state = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(state, ZSTD_c_checksumFlag, 1);
  std::string made(ZSTD_compressBound(text.size()), '\0');
  made.resize(ZSTD_compress2(state, made.data(), made.size(), text.data(), text.size()));
  ZSTD_freeCCtx(state);
  return made;
}

/// A stream of bzip2 data with this text.
inline std::string bzip2(std::string text) {
  auto bytes = static_cast<unsigned>(text.size() + text.size() / 100 + 600);
  std::string made(bytes, '\0');
  constexpr int kBlock = 9;
  if (BZ2_bzBuffToBuffCompress(made.data(), &bytes, text.data(), static_cast<unsigned>(text.size()),
                               kBlock, 0, 0) != BZ_OK)
    throw std::runtime_error("bzip2");
  made.resize(bytes);
  return made;
}

/// A stream of xz data with this text and a CRC-64.
inline std::string xz(const std::string& text) {
  std::string made(lzma_stream_buffer_bound(text.size()), '\0');
  std::size_t bytes = 0;
  if (lzma_easy_buffer_encode(LZMA_PRESET_DEFAULT, LZMA_CHECK_CRC64, nullptr,
                              reinterpret_cast<const std::uint8_t*>(text.data()), text.size(),
                              reinterpret_cast<std::uint8_t*>(made.data()), &bytes,
                              made.size()) != LZMA_OK)
    throw std::runtime_error("xz");
  made.resize(bytes);
  return made;
}

}  // namespace axonn::test
