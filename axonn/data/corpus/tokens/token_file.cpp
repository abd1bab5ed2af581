#include "axonn/data/corpus/tokens/token_file.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <utility>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/log.h"
#include "axonn/foundation/base/numbers.h"
#include "axonn/foundation/base/utf8.h"

namespace axonn {

namespace {

static_assert(std::endian::native == std::endian::little, "the formats are little-endian");

/// What llm.c writes for GPT-2's tokenizer, and for Llama 3's.
constexpr std::int32_t kLlmcMagic = 20240520, kLlmcVersion = 1, kLlmcWideMagic = 20240801,
                       kLlmcWideVersion = 7;
constexpr std::int64_t kLlmcHeaderBytes = 1024;

constexpr std::string_view kNumpyMagic = "\x93NUMPY";
constexpr std::string_view kMegatronMagic{"MMIDIDX\0\0", 9};
constexpr std::uint64_t kMegatronVersion = 1;
/// Offsets in the index of the version, the type, the two counts and the sequences' lengths.
constexpr std::size_t kVersionAt = 9, kTypeAt = 17, kSequencesAt = 18, kDocumentsAt = 26,
                      kLengthsAt = 34;

constexpr std::size_t kBufferBytes = 1 << 20;  // makes the cost of a call negligible
constexpr std::int64_t kDocumentsAtOnce = 64;  // as many as a sequence has, or more
constexpr std::int64_t kMostInt32 = std::numeric_limits<std::int32_t>::max();

/// Element `index` of an array of little-endian numbers that need not be aligned.
template <typename T>
T load(const char* bytes, std::int64_t index = 0) {
  T value;
  std::memcpy(&value, bytes + index * static_cast<std::int64_t>(sizeof value), sizeof value);
  return value;
}

/// Reads an array of numbers in a file, front to back.
template <typename T>
class NumberReader {
 public:
  /// The file must have all `count` numbers from `offset` on. Reads so many at once.
  NumberReader(const InputFile& file, std::int64_t offset, std::int64_t count,
               std::int64_t at_once = kBufferBytes / sizeof(T))
      : file_(file), offset_(offset), left_(count), at_once_(at_once) {}

  T next() {
    if (at_ == block_.size()) {
      block_.resize(std::min(left_, at_once_));
      file_.read(offset_, std::as_writable_bytes(std::span(block_)));
      offset_ += static_cast<std::int64_t>(block_.size() * sizeof(T));
      left_ -= std::ssize(block_);
      at_ = 0;
    }
    return block_[at_++];
  }

 private:
  const InputFile& file_;
  std::int64_t offset_, left_, at_once_;
  std::vector<T> block_;
  std::size_t at_ = 0;
};

/// The prefix of the Megatron files that path names, or nothing.
std::optional<std::string> megatron_prefix(const std::string& path) {
  if (path.ends_with(".idx")) return path.substr(0, path.size() - 4);
  if (path.ends_with(".bin")) {
    const std::string prefix = path.substr(0, path.size() - 4);
    return path_exists(prefix + ".idx") ? std::optional(prefix) : std::nullopt;
  }
  if (!path_exists(path) && (path_exists(path + ".idx") || path_exists(path + ".bin"))) return path;
  return std::nullopt;
}

std::string tokens_path(const std::string& path) {
  const auto prefix = megatron_prefix(path);
  return prefix ? *prefix + ".bin" : path;
}

template <typename T>
void widen(std::span<std::int32_t> out, const char* bytes) {
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = static_cast<std::int32_t>(load<T>(bytes, static_cast<std::int64_t>(i)));
}

/// A token that does not fit 32 bits becomes -1 or the largest value. No vocabulary has these, so
/// it is refused like any token that is out of range.
template <typename T>
void narrow(std::span<std::int32_t> out, const char* bytes) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    const T token = load<T>(bytes, static_cast<std::int64_t>(i));
    out[i] = std::cmp_less(token, -1)           ? -1
             : std::cmp_less(kMostInt32, token) ? static_cast<std::int32_t>(kMostInt32)
                                                : static_cast<std::int32_t>(token);
  }
}

/// The first four bytes of a file, as a number; 0 if it is shorter.
std::int32_t first_number(const InputFile& file) {
  std::int32_t number = 0;
  if (file.bytes() >= 4) file.read(0, std::as_writable_bytes(std::span(&number, 1)));
  return number;
}

bool is_numpy(const InputFile& file) {
  std::array<char, 6> begin{};
  if (file.bytes() < std::ssize(begin)) return false;
  file.read(0, std::as_writable_bytes(std::span(begin)));
  return std::string_view(begin.data(), begin.size()) == kNumpyMagic;
}

/// The type of a NumPy array of such a "descr"; none if it holds no tokens.
std::optional<TokenType> numpy_type(std::string_view descr) {
  constexpr std::array<std::pair<std::string_view, TokenType>, 8> kTypes{{{"|u1", TokenType::u8},
                                                                          {"|i1", TokenType::i8},
                                                                          {"<u2", TokenType::u16},
                                                                          {"<i2", TokenType::i16},
                                                                          {"<u4", TokenType::u32},
                                                                          {"<i4", TokenType::i32},
                                                                          {"<u8", TokenType::u64},
                                                                          {"<i8", TokenType::i64}}};
  for (const auto& [name, type] : kTypes)
    if (descr == name) return type;
  return std::nullopt;
}

/// What stands between `before` and the next `after` in the text of a NumPy header; "" if missing.
std::string_view between(std::string_view text, std::string_view before, char after) {
  const std::size_t begin = text.find(before);
  if (begin == text.npos) return {};
  text.remove_prefix(begin + before.size());
  return text.substr(0, text.find(after));
}

std::array<std::int32_t, kLlmcHeaderBytes / 4> llmc_header(std::int64_t count) {
  return {kLlmcMagic, kLlmcVersion, static_cast<std::int32_t>(count)};
}

/// The file that gets the tokens of TokenWriter's path.
std::string path_for_tokens(const std::string& path, std::int64_t vocab) {
  AXONN_CHECK(vocab > 0, "TokenWriter: the vocabulary has ", vocab, " tokens");
  if (!path.ends_with(".bin")) return path + ".bin";
  if (vocab > 65'536)
    refuse("cannot write ", path, ": an llm.c file holds tokens below 65,536, but the ",
           "vocabulary has ", vocab, "; give a name without .bin, for Megatron's format");
  return path;
}

std::string text_of(std::span<const std::int32_t> tokens, const Tokenizer& tokenizer) {
  std::string text;
  for (std::int32_t token : tokens) {
    if (token < 0 || token >= tokenizer.vocab_size())
      return concat("token ", token, " is not one of the ", tokenizer.vocab_size(), " of ",
                    tokenizer.name(), ": the file was made with another tokenizer");
    text += tokenizer.bytes_of(token);
  }
  text.resize(text.size() - incomplete_utf8_suffix(text));
  return '"' + escaped(text) + '"';
}

}  // namespace

std::string_view name_of(TokenType type) {
  constexpr std::array<std::string_view, 11> kNames{"?", "u8", "i8",  "i16", "i32", "i64",
                                                    "?", "?",  "u16", "u32", "u64"};
  return kNames.at(static_cast<std::size_t>(type));
}

std::int64_t bytes_of(TokenType type) {
  constexpr std::array<std::int64_t, 11> kBytes{0, 1, 1, 2, 4, 8, 0, 0, 2, 4, 8};
  return kBytes.at(static_cast<std::size_t>(type));
}

bool TokenFile::recognises(const std::string& path) {
  if (megatron_prefix(path)) return true;
  if (!is_plain_file(path)) return false;
  const InputFile file(path);
  const std::int32_t magic = first_number(file);
  return magic == kLlmcMagic || magic == kLlmcWideMagic || is_numpy(file);
}

bool TokenFile::recognises(const std::string& path, RawTokens raw) {
  return recognises(path) ||
         (raw != RawTokens::automatic && (ends_in(path, ".bin") || ends_in(path, ".npy")));
}

TokenFile::TokenFile(const std::string& path, RawTokens raw) : tokens_(tokens_path(path)) {
  const std::int32_t magic = first_number(tokens_);
  if (const auto prefix = megatron_prefix(path))
    open_megatron(*prefix + ".idx");
  else if (magic == kLlmcMagic || magic == kLlmcWideMagic)
    open_llmc(magic == kLlmcMagic ? TokenType::u16 : TokenType::u32);
  else if (is_numpy(tokens_))
    open_numpy();
  else
    open_raw(raw);
}

void TokenFile::open_llmc(TokenType type) {
  const std::string& path = tokens_.path();
  const std::int64_t size = tokens_.bytes();
  if (size < kLlmcHeaderBytes)
    refuse(path, ": has ", size, " bytes, but the header of an llm.c token file alone has ",
           kLlmcHeaderBytes, "; is the file whole?");
  std::array<std::int32_t, 3> header{};
  tokens_.read(0, std::as_writable_bytes(std::span(header)));
  const std::int32_t version = header[1],
                     wanted_version = type == TokenType::u16 ? kLlmcVersion : kLlmcWideVersion;
  if (version != wanted_version)
    refuse(path, ": is of version ", version, " of llm.c's format; with its first number only ",
           wanted_version, " (tokens of ", 8 * bytes_of(type), " bits) is known");
  format_ = "llm.c";
  type_ = type;
  count_ = header[2];
  const std::int64_t wanted = kLlmcHeaderBytes + bytes_of(type) * count_;
  if (count_ < 0 || size != wanted)
    refuse(path, ": its header counts ", count_, " tokens, which makes ", wanted,
           " bytes, but the file has ", size, "; it was cut short or altered; make it again");
  first_byte_ = kLlmcHeaderBytes;
}

void TokenFile::open_numpy() {
  const std::string& path = tokens_.path();
  constexpr std::int64_t kShort = 10, kLong = 12, kMostHeader = 1 << 16;
  std::array<char, kLong> begin{};
  if (tokens_.bytes() < kLong) refuse(path, ": is a cut NumPy array; copy or download it again");
  tokens_.read(0, std::as_writable_bytes(std::span(begin)));
  const bool short_form = begin[6] == 1;
  const std::int64_t bytes =
      short_form ? load<std::uint16_t>(begin.data() + 8) : load<std::uint32_t>(begin.data() + 8);
  first_byte_ = (short_form ? kShort : kLong) + bytes;
  if (bytes > kMostHeader || first_byte_ > tokens_.bytes())
    refuse(path, ": its NumPy header has ", bytes, " bytes; is the file whole?");
  std::string header(static_cast<std::size_t>(bytes), '\0');
  tokens_.read(first_byte_ - bytes, std::as_writable_bytes(std::span(header)));
  const std::string_view descr = between(header, "'descr': '", '\''),
                         shape = between(header, "'shape': (", ')');
  const auto type = numpy_type(descr);
  if (!type)
    refuse(path, ": is a NumPy array of ", printable(descr.empty() ? header : descr),
           "; tokens are little-endian integers, such as '<u2'");
  type_ = *type;
  const bool one_dimension = shape.ends_with(',') && std::ranges::count(shape, ',') == 1;
  const auto count = parse_integer(shape.substr(0, shape.find(',')));
  if (!one_dimension || !count || *count < 0)
    refuse(path, ": is a NumPy array of shape (", printable(shape), "); tokens are of one ",
           "dimension: numpy.save(file, array.reshape(-1))");
  format_ = "NumPy";
  count_ = *count;
  if (count_ > (tokens_.bytes() - first_byte_) / bytes_of(type_) ||
      tokens_.bytes() != first_byte_ + count_ * bytes_of(type_))
    refuse(path, ": its header counts ", count_, " tokens of ", bytes_of(type_), " bytes, but ",
           tokens_.bytes() - first_byte_, " follow; it was cut short or altered");
}

void TokenFile::open_raw(RawTokens raw) {
  constexpr std::array<TokenType, 6> kTypes{TokenType::u8,  TokenType::u8,  TokenType::u16,
                                            TokenType::u32, TokenType::i32, TokenType::i64};
  const std::string& path = tokens_.path();
  if (raw == RawTokens::automatic)
    refuse(path, ": does not begin as a token file of llm.c or NumPy; if it is tokens without a ",
           "header, as nanoGPT, litgpt and OLMo write them, set data.token_type, for example to ",
           "u16; Megatron's .bin needs its .idx beside it, and text goes to data.text");
  format_ = "tokens without a header";
  type_ = kTypes[static_cast<std::size_t>(raw)];
  count_ = tokens_.bytes() / bytes_of(type_);
  if (count_ * bytes_of(type_) != tokens_.bytes())
    refuse(path, ": has ", tokens_.bytes(), " bytes, no multiple of the ", bytes_of(type_),
           " of data.token_type = ", kRawTokens[static_cast<std::size_t>(raw)]);
}

void TokenFile::open_megatron(const std::string& path) {
  InputFile file(path);
  const auto size = static_cast<std::uint64_t>(file.bytes());
  const auto altered = [&](const auto&... parts) {
    refuse(path, ": ", parts..., "; it was cut short or altered; make it again");
  };
  std::array<char, kLengthsAt> index{};
  if (size < kLengthsAt) altered("has ", size, " bytes, but the header alone has ", kLengthsAt);
  file.read(0, std::as_writable_bytes(std::span(index)));
  if (!std::string_view(index.data(), index.size()).starts_with(kMegatronMagic))
    altered("does not begin with MMIDIDX");
  const auto version = load<std::uint64_t>(index.data() + kVersionAt);
  if (version != kMegatronVersion) altered("is of version ", version, "; only 1 is known");
  const auto code = load<std::uint8_t>(index.data() + kTypeAt);
  if (code == 6 || code == 7)
    refuse(path, ": holds ", code == 6 ? "f64" : "f32", " values (type ", int{code},
           "); tokens are integers");
  if (code == 0 || code > 8) altered("type ", int{code}, " is not in 1 to 8");
  type_ = static_cast<TokenType>(code);
  format_ = "Megatron";

  const auto counted = load<std::uint64_t>(index.data() + kSequencesAt),
             listed = load<std::uint64_t>(index.data() + kDocumentsAt);
  const std::uint64_t room = size - kLengthsAt;
  // Division rather than multiplication: a count of 2^62 must not overflow.
  if (counted > room / 12 || listed > room / 8 || 12 * counted + 8 * listed != room)
    altered("counts ", counted, " sequences and ", listed,
            " document indices, which do not make its ", size, " bytes");
  if (listed == 0) altered("has no document indices; an empty file has one");
  const auto sequences = static_cast<std::int64_t>(counted),
             entries = static_cast<std::int64_t>(listed);
  const std::int64_t offsets_at = kLengthsAt + 4 * sequences,
                     documents_at = offsets_at + 8 * sequences;
  NumberReader<std::int32_t> lengths(file, kLengthsAt, sequences);
  NumberReader<std::int64_t> offsets(file, offsets_at, sequences),
      documents(file, documents_at, entries);
  const std::int64_t item = bytes_of(type_);
  for (std::int64_t s = 0; s < sequences; ++s) {
    const auto length = lengths.next();
    if (length < 0) altered("sequence ", s, " has a length of ", length);
    if (const auto offset = offsets.next(); offset != count_ * item)
      altered("sequence ", s, " begins at byte ", offset,
              " of the .bin, but those before it end at ", count_ * item);
    count_ += length;
  }
  const std::int64_t first = documents.next();
  std::int64_t last = first;
  for (std::int64_t d = 1; d < entries; ++d) {
    const std::int64_t before = std::exchange(last, documents.next());
    if (last < before) altered("document index ", d, " is less than the one before it");
  }
  if (first != 0 || last != sequences)
    altered("its document indices go from ", first, " to ", last, ", not from 0 to ", sequences);

  if (tokens_.bytes() != count_ * item)
    refuse(tokens_.path(), ": has ", tokens_.bytes(), " bytes, but its index counts ", count_,
           " tokens of ", item, " bytes, ", count_ * item,
           "; it was cut short or altered, or the two files belong to different data sets");
  index_ = Index{std::move(file), sequences, entries - 1, offsets_at, documents_at};
}

std::int64_t TokenFile::begin_of(std::int64_t document) const {
  const auto number = [&](std::int64_t at) {
    std::int64_t value = 0;
    index_->file.read(at, std::as_writable_bytes(std::span(&value, 1)));
    return value;
  };
  const std::int64_t sequence = number(index_->documents_at + 8 * document);
  if (sequence >= index_->sequences) return count_;
  return number(index_->offsets_at + 8 * sequence) / bytes_of(type_);
}

void TokenFile::document_begins(std::int64_t begin, std::int64_t end,
                                std::vector<std::int64_t>& to) const {
  if (!index_) return;
  std::int64_t low = 0, high = index_->documents;  // the first document from `begin` on
  while (low < high) {
    const std::int64_t middle = low + (high - low) / 2;
    if (begin_of(middle) < begin)
      low = middle + 1;
    else
      high = middle;
  }
  NumberReader<std::int64_t> sequences(index_->file, index_->documents_at + 8 * low,
                                       index_->documents - low, kDocumentsAtOnce);
  std::optional<NumberReader<std::int64_t>> offsets;
  std::int64_t last = -1, next = -1;  // the document's first token; the next sequence of offsets
  for (; low < index_->documents; ++low) {
    const std::int64_t sequence = sequences.next();
    if (sequence >= index_->sequences) return;
    if (sequence != next)
      offsets.emplace(index_->file, index_->offsets_at + 8 * sequence, index_->sequences - sequence,
                      kDocumentsAtOnce);
    next = sequence + 1;
    const std::int64_t at = offsets->next() / bytes_of(type_);
    if (at >= end) return;
    if (at != last) to.push_back(at);  // documents without tokens begin where the next does
    last = at;
  }
}

void TokenFile::read_valid(std::int64_t begin, std::span<std::int32_t> tokens) const {
  std::vector<char> raw(tokens.size() * bytes_of(type_));
  tokens_.read(first_byte_ + begin * bytes_of(type_), std::as_writable_bytes(std::span(raw)));
  const char* bytes = raw.data();
  switch (type_) {
    case TokenType::u8:
      return widen<std::uint8_t>(tokens, bytes);
    case TokenType::i8:
      return widen<std::int8_t>(tokens, bytes);
    case TokenType::i16:
      return widen<std::int16_t>(tokens, bytes);
    case TokenType::u16:
      return widen<std::uint16_t>(tokens, bytes);
    case TokenType::i32:
      return widen<std::int32_t>(tokens, bytes);
    case TokenType::u32:
      return narrow<std::uint32_t>(tokens, bytes);
    case TokenType::i64:
      return narrow<std::int64_t>(tokens, bytes);
    case TokenType::u64:
      return narrow<std::uint64_t>(tokens, bytes);
  }
}

std::string describe(const TokenFile& file, const Tokenizer* tokenizer, std::int64_t first) {
  std::string out = concat("file       ", file.name(), "\nformat     ", file.format(), ", ",
                           name_of(file.type()), "\ntokens     ", format_count(file.size()), '\n');
  if (const auto documents = file.documents()) {
    out += concat("documents  ", format_count(*documents));
    if (*documents > 0)
      out += concat(", ", format_count(file.size() / *documents), " tokens on average");
    out += '\n';
  }
  if (file.size() == 0) return out;
  std::int32_t smallest = std::numeric_limits<std::int32_t>::max(),
               largest = std::numeric_limits<std::int32_t>::min();
  std::vector<std::int32_t> tokens(1 << 16);
  for (std::int64_t begin = 0; begin < file.size(); begin += std::ssize(tokens)) {
    tokens.resize(std::min<std::int64_t>(std::ssize(tokens), file.size() - begin));
    file.read(begin, tokens);
    const auto [least, most] = std::ranges::minmax(tokens);
    smallest = std::min(smallest, least);
    largest = std::max(largest, most);
  }
  out += concat("smallest   ", smallest, "\nlargest    ", largest, '\n');
  tokens.resize(std::clamp<std::int64_t>(first, 0, file.size()));
  file.read(0, tokens);
  out += "first     ";
  for (std::int32_t token : tokens) out += concat(' ', token);
  out += '\n';
  if (tokenizer) out += concat("text       ", text_of(tokens, *tokenizer), '\n');
  return out;
}

TokenWriter::TokenWriter(const std::string& path, std::int64_t vocab)
    : type_(path.ends_with(".bin") || vocab < 65'500 ? TokenType::u16 : TokenType::i32),
      tokens_(path_for_tokens(path, vocab)) {
  if (tokens_.path() == path)
    tokens_.append(std::as_bytes(std::span<const std::int32_t>(llmc_header(0))));
  else
    index_.emplace(path + ".idx");
}

void TokenWriter::append(std::span<const std::int32_t> tokens) {
  if (!index_ && std::ssize(tokens) > kMostInt32 - count_)
    refuse("cannot write ", tokens_.path(), ": an llm.c file holds at most ", kMostInt32,
           " tokens; give a name without .bin, for Megatron's format, or split the text");
  const std::int64_t most =
      type_ == TokenType::u16 ? std::numeric_limits<std::uint16_t>::max() : kMostInt32;
  const auto bad =
      std::ranges::find_if(tokens, [&](std::int32_t token) { return token < 0 || token > most; });
  if (bad != tokens.end())
    refuse("cannot write ", tokens_.path(), ": token ", count_ + (bad - tokens.begin()), " is ",
           *bad, ", but ", name_of(type_), " holds 0 to ", most);
  const auto put = [&]<typename T>(T) {
    for (std::span<const std::int32_t> rest = tokens; !rest.empty();) {
      const auto some = rest.first(std::min(rest.size(), kBufferBytes / sizeof(T)));
      const std::size_t had = buffer_.size();
      buffer_.resize(had + some.size() * sizeof(T));
      std::byte* to = buffer_.data() + had;
      for (const std::int32_t token : some) {
        const T narrow = static_cast<T>(token);
        std::memcpy(to, &narrow, sizeof narrow);
        to += sizeof narrow;
      }
      if (buffer_.size() >= kBufferBytes) flush();
      rest = rest.subspan(some.size());
    }
  };
  type_ == TokenType::u16 ? put(std::uint16_t{}) : put(std::int32_t{});
  count_ += std::ssize(tokens);
}

void TokenWriter::flush() {
  tokens_.append(buffer_);
  buffer_.clear();
}

/// A document that does not fit a sequence's 32-bit length becomes several sequences.
void TokenWriter::end_document() {
  std::int64_t length = count_ - begun_;
  for (; length > kMostInt32; length -= kMostInt32)
    lengths_.push_back(static_cast<std::int32_t>(kMostInt32));
  lengths_.push_back(static_cast<std::int32_t>(length));
  documents_.push_back(std::ssize(lengths_));
  begun_ = count_;
}

void TokenWriter::append_index() {
  std::vector<std::int64_t> offsets;
  std::int64_t offset = 0;
  for (const std::int32_t length : lengths_) {
    offsets.push_back(offset);
    offset += length * bytes_of(type_);
  }
  std::array<char, kLengthsAt> header{};
  const auto put = [&](std::size_t at, std::uint64_t value) {
    std::memcpy(header.data() + at, &value, sizeof value);
  };
  kMegatronMagic.copy(header.data(), kMegatronMagic.size());
  put(kVersionAt, kMegatronVersion);
  header[kTypeAt] = static_cast<char>(type_);
  put(kSequencesAt, lengths_.size());
  put(kDocumentsAt, documents_.size());
  index_->append(std::as_bytes(std::span(header)));
  index_->append(std::as_bytes(std::span(lengths_)));
  index_->append(std::as_bytes(std::span(offsets)));
  index_->append(std::as_bytes(std::span(documents_)));
}

void TokenWriter::finish() {
  if (index_ && count_ > begun_) end_document();
  if (index_) append_index();
  flush();
  if (!index_)
    tokens_.overwrite(0, std::as_bytes(std::span<const std::int32_t>(llmc_header(count_))));
  tokens_.commit();
  if (index_) index_->commit();  // last: a data set exists once its index does
}

}  // namespace axonn
