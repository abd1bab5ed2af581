#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace axonn::testing_support {

/// A token file in llm.c's format: a header of 256 32-bit words, then 16-bit tokens.
inline std::string token_file_bytes(const std::vector<std::uint16_t>& tokens) {
  std::vector<std::int32_t> header(256);
  header[0] = 20240520;
  header[1] = 1;
  header[2] = static_cast<std::int32_t>(tokens.size());
  return std::string(reinterpret_cast<const char*>(header.data()), 4 * header.size()) +
         std::string(reinterpret_cast<const char*>(tokens.data()), 2 * tokens.size());
}

}  // namespace axonn::testing_support
