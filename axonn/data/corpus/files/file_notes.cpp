#include "axonn/data/corpus/files/file_notes.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <system_error>
#include <utility>

#include "axonn/data/corpus/files/file_formats.h"
#include "axonn/data/corpus/files/text_reader.h"
#include "axonn/data/corpus/preferences/answer_files.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/utf8.h"

namespace axonn {

namespace {

constexpr std::size_t kHeadBytes = std::size_t{1} << 20;

/// A note about the first of several files, and their number.
struct FileNote {
  std::string text, file;
  std::size_t files = 1;
};

std::vector<std::string> notes_of(const std::vector<std::string>& files,
                                  const std::function<std::string(const std::string&)>& note_of) {
  std::vector<FileNote> notes;
  for (const std::string& file : files) {
    std::string text = note_of(file);
    if (text.empty()) continue;
    const auto same = std::ranges::find(notes, text, &FileNote::text);
    if (same == notes.end())
      notes.push_back({.text = std::move(text), .file = file});
    else
      ++same->files;
  }
  std::vector<std::string> all;
  for (const FileNote& note : notes)
    all.push_back(concat(note.file, note.files > 1 ? concat(" and ", note.files - 1, " more") : "",
                         ": ", note.text));
  return all;
}

/// "" if there are none.
std::string note_of_keys(const std::vector<std::string>& keys) {
  if (keys.empty()) return "";
  std::string names;
  for (const std::string& key : keys) names += concat(names.empty() ? "" : ", ", printable(key));
  return concat("nothing reads the key", keys.size() > 1 ? "s " : " ", shortened(names, 400),
                "; training ignores ", keys.size() > 1 ? "them" : "it");
}

}  // namespace

std::vector<std::string> notes_of_examples(const std::vector<std::string>& files,
                                           const ExampleEncoder& encoder) {
  return notes_of(files, [&](const std::string& file) {
    return note_of_keys(unread_keys(file, [&](const Line& line) {
      return encoder.unread_keys(parse_example(line.text, line.location));
    }));
  });
}

std::vector<std::string> notes_of_answers(const std::vector<std::string>& files,
                                          const AnswerData& data,
                                          const std::optional<ChatTemplate>& chat) {
  return notes_of(files, [&](const std::string& file) {
    return note_of_keys(
        unread_keys(file, [&](const Line& line) { return unread_answer_keys(line, data, chat); }));
  });
}

std::string note_of_left_out(const std::vector<std::string>& paths) {
  namespace fs = std::filesystem;
  std::map<std::string, int> endings;
  int count = 0;
  for (const std::string& path : paths) {
    std::error_code error;  // text_files() tells it
    const auto follow = fs::directory_options::follow_directory_symlink;
    for (fs::recursive_directory_iterator at(path, follow, error), end; !error && at != end;
         at.increment(error)) {
      const fs::path& file = at->path();
      if (is_text_name(file.native()) || file.filename().native().starts_with('.')) continue;
      if (!at->is_regular_file(error)) continue;
      ++count;
      ++endings[file.has_extension() ? file.extension().string() : "no ending"];
    }
  }
  std::string names;
  for (const auto& [ending, files] : endings)
    names += concat(names.empty() ? "" : ", ", files, " with ", printable(ending));
  return count == 0 ? ""
                    : concat(count, " files of the folders are not read (", shortened(names, 200),
                             "); name them, or rename text to .txt");
}

std::vector<std::string> notes_of_texts(const std::vector<std::string>& files,
                                        const std::string& field) {
  return notes_of(files, [&](const std::string& file) {
    if (!is_json_lines(file)) return note_of_bytes(TextReader(file).peek(kHeadBytes));
    return note_of_keys(
        unread_keys(file, [&](const Line& line) { return other_keys_of_line(line, field); }));
  });
}

}  // namespace axonn
