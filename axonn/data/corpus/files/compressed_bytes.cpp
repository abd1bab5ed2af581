#include "axonn/data/corpus/files/compressed_bytes.h"

#include <algorithm>
#include <array>
#include <vector>

#include <bzlib.h>
#include <lzma.h>
#include <zlib.h>
#include <zstd.h>

#include "axonn/foundation/base/check.h"

namespace axonn {

namespace {

constexpr std::size_t kInputBytes = std::size_t{1} << 18;  // of a file that are read at a time
constexpr int kLargestWindow = 31;  // log2 of bytes: what zstd --long=31 needs

constexpr std::string_view kGzip = "\x1f\x8b", kZstandard = "\x28\xb5\x2f\xfd";
constexpr std::string_view kXz("\xfd\x37\x7a\x58\x5a\0", 6);
// A frame that decoders skip begins with one of 16 numbers, which differ in the first byte.
constexpr std::string_view kSkippable = "\x2a\x4d\x18";

/// "BZh", a digit, and the number with which a block or the end begins.
bool is_bzip2(std::string_view begin) {
  return begin.size() >= 10 && begin.starts_with("BZh") && begin[3] >= '1' && begin[3] <= '9' &&
         (begin.substr(4, 6) == "1AY&SY" || begin.substr(4, 6) == "\x17\x72\x45\x38\x50\x90");
}

/// The common base of all kinds of compressed files: input in pieces, and the messages.
class Decompressed : public MadeBytes {
 public:
  using MadeBytes::MadeBytes;

 protected:
  /// The input from position() on; empty at the end of the file.
  std::span<char> input() {
    if (used_ == input_.size()) {
      input_.resize(std::min<std::size_t>(kInputBytes, file_.bytes() - at_));
      file_.read(at_, std::as_writable_bytes(std::span(input_)));
      used_ = 0;
    }
    return std::span(input_).subspan(used_);
  }
  void use(std::size_t bytes) {
    used_ += bytes;
    at_ += static_cast<std::int64_t>(bytes);
  }
  template <typename... Parts>
  [[noreturn]] void damaged(const Parts&... parts) const {
    refuse(file_.path(), " is damaged at byte ", at_, " of ", file_.bytes(), ": ", parts...,
           "; copy or download it again");
  }
  [[noreturn]] void cut_short(const char* what) const {
    refuse(file_.path(), " is cut short: it ends at byte ", at_, ", inside ", what,
           "; copy or download it again");
  }

 private:
  std::vector<char> input_;
  std::size_t used_ = 0;  // of input_
};

/// Fails as the library does without memory.
void need_memory(bool ok, const char* library) { AXONN_CHECK(ok, library, ": no memory"); }

/// Members of gzip data, one after the other. Zeros after the last one are padding.
class GzipBytes final : public Decompressed {
 public:
  explicit GzipBytes(InputFile file) : Decompressed(std::move(file)) {
    need_memory(inflateInit2(&state_, kGzipOnly) == Z_OK, "zlib");
  }
  ~GzipBytes() override { inflateEnd(&state_); }

  std::size_t read(std::span<char> out) override {
    std::size_t made = 0;
    while (made < out.size()) {
      const std::span<char> in = input();
      if (!inside_ && !begin_member(in)) break;
      if (in.empty()) cut_short("a gzip member");
      state_.next_in = reinterpret_cast<Bytef*>(in.data());
      state_.avail_in = static_cast<uInt>(in.size());
      state_.next_out = reinterpret_cast<Bytef*>(out.data() + made);
      state_.avail_out = static_cast<uInt>(std::min(out.size() - made, kInputBytes));
      const uInt room = state_.avail_out;
      const int status = inflate(&state_, Z_NO_FLUSH);
      use(in.size() - state_.avail_in);
      made += room - state_.avail_out;
      if (status == Z_STREAM_END) {
        inside_ = false;
        inflateReset(&state_);
      } else if (status != Z_OK && status != Z_BUF_ERROR) {
        damaged(state_.msg ? state_.msg : "not gzip data");
      }
    }
    return made;
  }

 private:
  static constexpr int kGzipOnly = 15 + 16;  // zlib's code for the largest window and gzip's header

  /// Whether another member begins with this input.
  bool begin_member(std::span<char> in) {
    for (; !in.empty() && in[0] == 0; in = input()) {
      if (at_ == 0) break;
      use(1);
      padded_ = true;
    }
    if (in.empty()) return false;
    if (padded_ || (at_ > 0 && in[0] != kGzip[0])) damaged("there are other data behind the end");
    inside_ = true;
    return true;
  }

  z_stream state_{};
  bool inside_ = false, padded_ = false;
};

/// Frames of Zstandard data, one after the other.
class ZstandardBytes final : public Decompressed {
 public:
  explicit ZstandardBytes(InputFile file) : Decompressed(std::move(file)) {
    need_memory(state_ != nullptr, "Zstandard");
    ZSTD_DCtx_setParameter(state_.get(), ZSTD_d_windowLogMax, kLargestWindow);
  }

  std::size_t read(std::span<char> out) override {
    ZSTD_outBuffer made{out.data(), out.size(), 0};
    while (made.pos < made.size) {
      const std::span<char> in = input();
      if (in.empty() && !inside_) break;
      ZSTD_inBuffer taken{in.data(), in.size(), 0};
      const std::size_t before = made.pos,
                        status = ZSTD_decompressStream(state_.get(), &made, &taken);
      if (ZSTD_isError(status)) damaged(ZSTD_getErrorName(status));
      use(taken.pos);
      inside_ = status != 0;
      if (in.empty() && inside_ && made.pos == before) cut_short("a Zstandard frame");
    }
    return made.pos;
  }

 private:
  struct Free {
    void operator()(ZSTD_DCtx* state) const { ZSTD_freeDCtx(state); }
  };
  std::unique_ptr<ZSTD_DCtx, Free> state_{ZSTD_createDCtx()};
  bool inside_ = false;  // of a frame
};

/// Streams of bzip2 data, one after the other.
class Bzip2Bytes final : public Decompressed {
 public:
  explicit Bzip2Bytes(InputFile file) : Decompressed(std::move(file)) { begin_stream(); }
  ~Bzip2Bytes() override { BZ2_bzDecompressEnd(&state_); }

  std::size_t read(std::span<char> out) override {
    std::size_t made = 0;
    while (made < out.size()) {
      const std::span<char> in = input();
      if (in.empty() && !inside_) break;
      if (in.empty()) cut_short("a bzip2 stream");
      inside_ = true;
      state_.next_in = in.data();
      state_.avail_in = static_cast<unsigned>(in.size());
      state_.next_out = out.data() + made;
      state_.avail_out = static_cast<unsigned>(std::min(out.size() - made, kInputBytes));
      const unsigned room = state_.avail_out;
      const int status = BZ2_bzDecompress(&state_);
      use(in.size() - state_.avail_in);
      made += room - state_.avail_out;
      if (status == BZ_STREAM_END) {
        BZ2_bzDecompressEnd(&state_);
        begin_stream();
      } else if (status != BZ_OK) {
        damaged(at_ > 0 && status == BZ_DATA_ERROR_MAGIC ? "there are other data behind the end"
                                                         : "not bzip2 data");
      }
    }
    return made;
  }

 private:
  void begin_stream() {
    state_ = {};
    need_memory(BZ2_bzDecompressInit(&state_, 0, 0) == BZ_OK, "bzip2");
    inside_ = false;
  }

  bz_stream state_{};
  bool inside_ = false;
};

/// Streams of xz data, one after the other. Zeros after them are padding.
class XzBytes final : public Decompressed {
 public:
  explicit XzBytes(InputFile file) : Decompressed(std::move(file)) {
    constexpr std::uint64_t kMostMemory = std::uint64_t{2} << 30;
    need_memory(lzma_stream_decoder(&state_, kMostMemory, LZMA_CONCATENATED) == LZMA_OK, "xz");
  }
  ~XzBytes() override { lzma_end(&state_); }

  std::size_t read(std::span<char> out) override {
    std::size_t made = 0;
    while (made < out.size() && !at_end_) {
      const std::span<char> in = input();
      state_.next_in = reinterpret_cast<const std::uint8_t*>(in.data());
      state_.avail_in = in.size();
      state_.next_out = reinterpret_cast<std::uint8_t*>(out.data() + made);
      state_.avail_out = out.size() - made;
      const lzma_ret status = lzma_code(&state_, in.empty() ? LZMA_FINISH : LZMA_RUN);
      use(in.size() - state_.avail_in);
      made = out.size() - state_.avail_out;
      if (status == LZMA_STREAM_END)
        at_end_ = true;
      else if (status == LZMA_BUF_ERROR && in.empty())
        cut_short("an xz stream");
      else if (status == LZMA_MEMLIMIT_ERROR)
        damaged("it asks for more than 2 GiB of memory");
      else if (status != LZMA_OK)
        damaged("not xz data");
    }
    return made;
  }

 private:
  lzma_stream state_ = LZMA_STREAM_INIT;
  bool at_end_ = false;
};

}  // namespace

Compression compression_of(const InputFile& file) {
  std::array<char, 10> bytes{};
  const std::size_t count = std::min<std::size_t>(bytes.size(), file.bytes());
  file.read(0, std::as_writable_bytes(std::span(bytes).first(count)));
  const std::string_view begin(bytes.data(), count), four = begin.substr(0, 4);
  if (begin.starts_with(kGzip)) return Compression::gzip;
  if (begin.starts_with(kXz)) return Compression::xz;
  if (is_bzip2(begin)) return Compression::bzip2;
  if (four == kZstandard || (four.ends_with(kSkippable) && (four[0] & 0xf0) == 0x50))
    return Compression::zstandard;
  return Compression::none;
}

std::unique_ptr<TextBytes> decompressed(InputFile file, Compression how) {
  switch (how) {
    case Compression::gzip:
      return std::make_unique<GzipBytes>(std::move(file));
    case Compression::zstandard:
      return std::make_unique<ZstandardBytes>(std::move(file));
    case Compression::bzip2:
      return std::make_unique<Bzip2Bytes>(std::move(file));
    case Compression::xz:
      return std::make_unique<XzBytes>(std::move(file));
    case Compression::none:
      break;
  }
  return std::make_unique<TextBytes>(std::move(file));
}

}  // namespace axonn
