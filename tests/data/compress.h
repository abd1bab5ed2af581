#pragma once

#include <stdexcept>
#include <string>

#include <zlib.h>
#include <zstd.h>

namespace axonn::test {

/// A member of gzip data with this text.
inline std::string gzip(const std::string& text) {
  z_stream state{};
  constexpr int kGzip = 15 + 16, kLeastMemory = 1;
  deflateInit2(&state, Z_BEST_SPEED, Z_DEFLATED, kGzip, kLeastMemory, Z_DEFAULT_STRATEGY);
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

}  // namespace axonn::test
