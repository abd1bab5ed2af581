#pragma once

#include <span>
#include <string>
#include <vector>

#include "axonn/data/storage/safetensors/safetensors.h"

namespace axonn::test {

/// A tensor to write: its entry (the writer sets begin and end) and its bytes.
struct SafetensorsTensor {
  SafetensorsEntry entry;
  std::span<const std::byte> data;
};

/// Writes a safetensors file. Throws Error if the size of some data does not match its shape.
inline void write_safetensors(const std::string& path,
                              const std::vector<SafetensorsTensor>& tensors) {
  std::vector<SafetensorsEntry> entries;
  for (const SafetensorsTensor& tensor : tensors) entries.push_back(tensor.entry);
  const std::string header = make_safetensors_header(entries);
  OutputFile file(path);
  file.append(std::as_bytes(std::span(header)));
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    AXONN_CHECK(std::ssize(tensors[i].data) == entries[i].bytes(), '"', entries[i].name,
                "\" needs ", entries[i].bytes(), " bytes for its shape and got ",
                tensors[i].data.size());
    file.append(tensors[i].data);
  }
  file.finish();
}

}  // namespace axonn::test
