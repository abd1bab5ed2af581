#include "axonn/data/corpus/files/file_formats.h"

#include <algorithm>
#include <array>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/utf8.h"

namespace axonn {

namespace {

using namespace std::string_view_literals;

constexpr std::string_view kOfTable = "give it a name that ends in .parquet: mv FILE FILE.parquet";
constexpr std::string_view kEncrypted = "write it without encryption";
constexpr std::string_view kOfArrow =
    "write its rows as JSON lines: python3 -c \"import datasets; "
    "datasets.Dataset.from_file('FILE').to_json('FILE.jsonl', force_ascii=False)\"";
constexpr std::string_view kUnpack = "unpack it and give the files in it";
constexpr std::string_view kOther = "only text and JSON lines can be trained on";
constexpr std::string_view kRecode = "convert it: iconv -f UTF-16 -t UTF-8 FILE > FILE.utf8.txt";
constexpr std::string_view kTokens = "give tokens as data.tokens";

struct Magic {
  std::string_view bytes;
  FileFormat format;
  std::size_t at = 0;
};

// Of two that fit, the first counts. No text in UTF-8 begins with the bytes beyond ASCII here.
constexpr std::array<Magic, 36> kMagics{{
    {"PAR1"sv, {"a Parquet file", kOfTable}},
    {"PARE"sv, {"an encrypted Parquet file", kEncrypted}},
    {"ARROW1\0\0"sv, {"an Arrow file", kOfArrow}},
    {"\xff\xff\xff\xff"sv, {"an Arrow stream", kOfArrow}},
    {"FEA1"sv, {"a Feather file", kOfArrow}},
    {"Obj\x01"sv, {"an Avro file", kOther}},
    {"\x93NUMPY"sv, {"a NumPy array (.npy)", kTokens}},
    {"\x89HDF\r\n"sv, {"an HDF5 file", kOther}},
    {"SQLite format 3\0"sv, {"an SQLite database", kOther}},
    {"PK\x03\x04"sv, {"a zip archive, or a document or array stored as one", kUnpack}},
    {"PK\x05\x06"sv, {"an empty zip archive", kUnpack}},
    {"7z\xbc\xaf\x27\x1c"sv, {"a 7z archive", kUnpack}},
    {"Rar!\x1a\x07"sv, {"a RAR archive", kUnpack}},
    {"ustar"sv, {"a tar archive", kUnpack}, 257},
    {"\x04\x22\x4d\x18"sv, {"compressed with LZ4", "decompress it: lz4 -dk FILE"}},
    {"\xff\x06\0\0sNaPpY"sv, {"compressed with Snappy", "decompress it first"}},
    {"\x1f\x9d"sv, {"compressed with compress", "decompress it: uncompress FILE"}},
    {"\xff\xfe\0\0"sv,
     {"text in UTF-32", "convert it: iconv -f UTF-32 -t UTF-8 FILE > FILE.utf8.txt"}},
    {"\0\0\xfe\xff"sv,
     {"text in UTF-32", "convert it: iconv -f UTF-32 -t UTF-8 FILE > FILE.utf8.txt"}},
    {"\xff\xfe"sv, {"text in UTF-16", kRecode}},
    {"\xfe\xff"sv, {"text in UTF-16", kRecode}},
    {"%PDF-"sv, {"a PDF document", "take the text out of it first, with pdftotext, for example"}},
    {"\xd0\xcf\x11\xe0"sv, {"an Office document", kOther}},
    {"\x80\x02"sv, {"a pickle of Python", kOther}},
    {"\x80\x03"sv, {"a pickle of Python", kOther}},
    {"\x80\x04"sv, {"a pickle of Python", kOther}},
    {"\x80\x05"sv, {"a pickle of Python", kOther}},
    {"GGUF"sv, {"a GGUF model", kOther}},
    {"\x7f"
     "ELF"sv,
     {"a program", kOther}},
    {"\x89PNG"sv, {"an image", kOther}},
    {"\xff\xd8\xff"sv, {"an image", kOther}},
    {"GIF8"sv, {"an image", kOther}},
    {"RIFF"sv, {"audio, video or an image", kOther}},
    {"ID3"sv, {"audio", kOther}},
    {"OggS"sv, {"audio", kOther}},
    {"fLaC"sv, {"audio", kOther}},
}};

/// Formats whose first bytes may also be words: the next bytes of text are printable.
bool is_word(std::string_view magic) {
  return std::ranges::all_of(magic, [](char c) { return c >= ' ' && c < 0x7f; });
}

bool has_binary(std::string_view bytes) {
  return std::ranges::any_of(bytes, [](unsigned char c) {
    return c == 0x7f || (c < ' ' && kWhiteSpace.find(static_cast<char>(c)) == kWhiteSpace.npos);
  });
}

std::string with_path(std::string_view remedy, const std::string& path) {
  std::string text(remedy);
  for (std::size_t at = 0; (at = text.find("FILE", at)) != text.npos; at += path.size())
    text.replace(at, 4, path);
  return text;
}

}  // namespace

const FileFormat* format_of(std::string_view begin) {
  begin = begin.substr(0, kFormatBytes);
  for (const Magic& magic : kMagics) {
    if (begin.size() < magic.at || !begin.substr(magic.at).starts_with(magic.bytes)) continue;
    const bool sure = !is_word(magic.bytes) || magic.bytes == "%PDF-";
    if (sure || has_binary(begin) || valid_utf8_prefix(begin) + 4 < begin.size())
      return &magic.format;
  }
  return nullptr;
}

void refuse_format(const std::string& path, std::string_view begin) {
  if (const FileFormat* format = format_of(begin))
    refuse(path, " is ", format->name, ", not text; ", with_path(format->remedy, path));
}

std::string note_of_bytes(std::string_view text) {
  const std::ptrdiff_t zeros = std::ranges::count(text, '\0');
  if (zeros > 0)
    return concat("there are ", zeros, " NUL bytes in the first ", text.size(),
                  ", so this is hardly text; training takes all bytes as they are");
  std::size_t invalid = 0;
  for (std::string_view rest = text; !rest.empty(); ++invalid) {
    rest.remove_prefix(valid_utf8_prefix(rest));
    if (rest.size() < 4) break;  // a character may be cut
    rest.remove_prefix(1);
  }
  if (invalid * 100 <= text.size()) return "";
  return concat(invalid, " of the first ", text.size(),
                " bytes are not UTF-8; convert other encodings first: iconv -f latin1 -t UTF-8");
}

}  // namespace axonn
