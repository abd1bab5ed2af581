#include "axonn/data/text/hub.h"

#include <algorithm>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/files.h"

namespace axonn {

std::string download_hint(const std::string& path) {
  constexpr std::string_view kCharacters =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./";
  const std::size_t slash = path.find('/');
  if (path.find_first_not_of(kCharacters) != path.npos || std::ranges::count(path, '/') != 1)
    return "";
  const std::string owner = path.substr(0, slash), name = path.substr(slash + 1);
  if (owner.empty() || name.empty() || owner.front() == '.' || is_folder(owner)) return "";
  return concat("; a name on Hugging Face's hub is not a folder: download the model with 'hf ",
                "download ", path, " --local-dir ", name, "' and give ", name);
}

}  // namespace axonn
