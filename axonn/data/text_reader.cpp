#include "axonn/data/text_reader.h"

#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include <zlib.h>
#include <zstd.h>

#include "axonn/base/check.h"
#include "axonn/base/files.h"
#include "axonn/data/file_formats.h"

namespace axonn {

namespace {

constexpr std::size_t kInputBytes = std::size_t{1} << 18;  // of a file that are read at a time
constexpr std::size_t kLeastRead = std::size_t{64} << 10;  // of text, decompressed at a time
constexpr std::size_t kMostBytesALine = std::size_t{1} << 30;
constexpr int kLargestWindow = 31;  // log2 of bytes: what zstd --long=31 needs

enum class Compression { none, gzip, zstandard };

constexpr std::string_view kGzip = "\x1f\x8b", kZstandard = "\x28\xb5\x2f\xfd";
// A frame that decoders skip begins with one of 16 numbers, which differ in the first byte.
constexpr std::string_view kSkippable = "\x2a\x4d\x18";

Compression compression_of(const InputFile& file) {
  std::array<char, 4> bytes{};
  const std::size_t count = std::min<std::size_t>(bytes.size(), file.bytes());
  file.read(0, std::as_writable_bytes(std::span(bytes).first(count)));
  const std::string_view begin(bytes.data(), count);
  if (begin.starts_with(kGzip)) return Compression::gzip;
  if (begin == kZstandard || (begin.ends_with(kSkippable) && (begin[0] & 0xf0) == 0x50))
    return Compression::zstandard;
  return Compression::none;
}

}  // namespace

/// Reads a file that is not compressed; the base of the others.
class TextReader::Bytes {
 public:
  explicit Bytes(InputFile file) : file_(std::move(file)) {}
  virtual ~Bytes() = default;
  Bytes(const Bytes&) = delete;
  Bytes& operator=(const Bytes&) = delete;

  /// Fills `out` with the next bytes. Returns their number: less than asked only at the end.
  virtual std::size_t read(std::span<char> out) {
    const std::size_t count = std::min<std::size_t>(out.size(), file_.bytes() - at_);
    file_.read(at_, std::as_writable_bytes(out.first(count)));
    at_ += static_cast<std::int64_t>(count);
    return count;
  }
  /// Passes over bytes. Returns false if the file ends before.
  virtual bool pass(std::int64_t bytes) {
    at_ += bytes;
    return at_ <= file_.bytes();
  }
  virtual bool compressed() const { return false; }
  const InputFile& file() const { return file_; }
  /// The bytes of the file that were used.
  std::int64_t position() const { return at_; }

 protected:
  InputFile file_;
  std::int64_t at_ = 0;
};

namespace {

/// The common base of both kinds of compressed files: input in pieces, and the messages.
class Decompressed : public TextReader::Bytes {
 public:
  using Bytes::Bytes;

  bool compressed() const override { return true; }
  bool pass(std::int64_t bytes) override {
    std::vector<char> scratch(kLeastRead);
    while (bytes > 0) {
      const std::size_t wanted = std::min<std::size_t>(scratch.size(), bytes);
      if (read(std::span(scratch).first(wanted)) < wanted) return false;
      bytes -= static_cast<std::int64_t>(wanted);
    }
    return true;
  }

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

/// Members of gzip data, one after the other. Zeros after the last one are padding.
class GzipBytes final : public Decompressed {
 public:
  explicit GzipBytes(InputFile file) : Decompressed(std::move(file)) {
    AXONN_CHECK(inflateInit2(&state_, kGzipOnly) == Z_OK, "zlib: no memory");
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
    AXONN_CHECK(state_, "Zstandard: no memory");
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

std::unique_ptr<TextReader::Bytes> make_bytes(InputFile file, Compression how) {
  if (how == Compression::gzip) return std::make_unique<GzipBytes>(std::move(file));
  if (how == Compression::zstandard) return std::make_unique<ZstandardBytes>(std::move(file));
  return std::make_unique<TextReader::Bytes>(std::move(file));
}

/// Also refuses what is text neither as it is nor decompressed, such as a table or an archive.
std::unique_ptr<TextReader::Bytes> open_bytes(const std::string& path) {
  InputFile file(path);
  const Compression found = compression_of(file);
  const bool gzip = ends_in(path, ".gz"), zstandard = ends_in(path, ".zst");
  if ((gzip && found != Compression::gzip) || (zstandard && found != Compression::zstandard))
    refuse(path, file.bytes() == 0 ? " is empty" : " is damaged at byte 0",
           ": it does not begin as ", gzip ? "gzip" : "Zstandard",
           " data do; copy or download it again, or rename it");
  std::array<char, kFormatBytes> begin{};
  refuse_format(path, {begin.data(), make_bytes(InputFile(path), found)->read(begin)});
  return make_bytes(std::move(file), found);
}

}  // namespace

bool is_json_lines(std::string_view path) {
  for (const std::string_view ending : {".gz", ".zst"})
    if (ends_in(path, ending)) path.remove_suffix(ending.size());
  return ends_in(path, ".jsonl") || ends_in(path, ".ndjson") || ends_in(path, ".json");
}

bool is_compressed(const std::string& path) {
  return compression_of(InputFile(path)) != Compression::none;
}

TextReader::TextReader(const std::string& path) : bytes_(open_bytes(path)) {}
TextReader::~TextReader() = default;

std::string_view TextReader::peek(std::size_t bytes) {
  if (!whole_ && buffer_.size() - begin_ < bytes) {
    buffer_.erase(0, begin_);
    begin_ = 0;
    const std::size_t had = buffer_.size(), wanted = std::max(bytes - had, kLeastRead);
    buffer_.resize(had + wanted);
    const std::size_t got = bytes_->read(std::span(buffer_).subspan(had));
    buffer_.resize(had + got);
    whole_ = got < wanted;
  }
  return std::string_view(buffer_).substr(begin_, bytes);
}

void TextReader::skip(std::size_t bytes) {
  begin_ += bytes;
  position_ += static_cast<std::int64_t>(bytes);
}

void TextReader::go_to(std::int64_t byte, std::int64_t line) {
  const bool there = bytes_->pass(byte);
  position_ = byte;
  line_ = line;
  if (!there || at_end())
    refuse(path(), " ends at or before byte ", byte,
           " of its text, where a run had come; it is not ", "the file that it was");
}

std::string_view TextReader::lines(std::size_t bytes, std::size_t most) {
  for (std::size_t wanted = std::max(bytes, kLeastRead);; wanted *= 2) {
    std::string_view text = peek(std::min(wanted, most));
    const bool rest = text.size() < wanted || wanted >= most;
    const std::size_t end = text.rfind('\n');
    if (!rest && end == text.npos) {
      if (wanted > kMostBytesALine)
        refuse(path(), ':', line_ + 1, ": the line has more than ", kMostBytesALine, " bytes");
      continue;
    }
    if (!rest) text = text.substr(0, end + 1);
    skip(text.size());
    line_ += std::ranges::count(text, '\n') + (text.ends_with('\n') || text.empty() ? 0 : 1);
    return text;
  }
}

const std::string& TextReader::path() const { return bytes_->file().path(); }

std::int64_t TextReader::file_bytes() const { return bytes_->file().bytes(); }

std::int64_t TextReader::file_position() const {
  return bytes_->compressed() ? bytes_->position() : position_;
}

void TextFiles::go_to(const TextPosition& place) {
  if (place == place_) return;
  reader_.reset();
  place_ = place;
  before_ = 0;
  for (std::size_t i = 0; i < place.file; ++i) before_ += InputFile(files_[i]).bytes();
  bytes_ = before_;
}

TextReader& TextFiles::reader() {
  if (!reader_) {
    reader_.emplace(file());
    if (place_.byte > 0) reader_->go_to(place_.byte, place_.line);
  }
  return *reader_;
}

bool TextFiles::advance() {
  const bool last = reader().at_end();
  if (last) {
    before_ += reader_->file_bytes();
    bytes_ = before_;
    place_ = {.file = place_.file + 1};
    reader_.reset();
  } else {
    bytes_ = before_ + reader_->file_position();
    place_ = {.file = place_.file, .byte = reader_->position(), .line = reader_->line()};
  }
  return last;
}

}  // namespace axonn
