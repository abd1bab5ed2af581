#pragma once

#include <string>

namespace axonn {

/// The remedy if a path that does not exist looks like a model's name on Hugging Face's hub
/// (OWNER/NAME, without a folder OWNER), for the end of a message: how to download it. Else "".
std::string download_hint(const std::string& path);

}  // namespace axonn
