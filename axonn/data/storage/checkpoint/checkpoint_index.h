#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "axonn/data/storage/parameter_source.h"

namespace axonn {

/// Checkpoints hold f32, but for an optimizer's state in few bits.
inline constexpr std::int64_t kElementBytes = sizeof(float);

/// How a block holds the values of a kind. Those that are not f32 lie slice after slice, each
/// filled up to a multiple of kCodeBlock values; the codes of a DynamicMap are followed elsewhere
/// by an absmax in f32 for each kCodeBlock of them.
enum class ValueCode : std::uint8_t { f32, bf16, dynamic, dynamic_unsigned };
inline constexpr std::int64_t kCodeBlock = 256;
inline bool has_absmax(ValueCode code) { return code >= ValueCode::dynamic; }
/// Bytes of a value, without its absmax.
inline std::int64_t bytes_of(ValueCode code) {
  return code == ValueCode::f32 ? kElementBytes : code == ValueCode::bf16 ? 2 : 1;
}
inline std::int64_t code_blocks(std::int64_t values) {
  return (values + kCodeBlock - 1) / kCodeBlock;
}

inline constexpr std::string_view kIndexName = "index.json", kLatestName = "latest",
                                  kBestName = "best";

/// The kinds of a run's weights, and of their running averages (optimizer.ema_decay).
inline constexpr const char *kWeightsKind = "master", *kAveragesKind = "ema";

/// The folder name of a step's checkpoint: "step-200".
std::string step_name(std::int64_t step);
/// The step of such a name, or -1 for any other name.
std::int64_t step_of(std::string_view name);

/// The steps whose checkpoints a folder holds, judged by name, highest first; none if the folder
/// cannot be read.
std::vector<std::int64_t> steps_in(const std::string& folder);

/// The step whose checkpoint a file DIR/latest or DIR/best names. Throws UsageError if it cannot be
/// read or names none.
std::int64_t step_named_in(const std::string& file);
/// The step that DIR/best names; -1 if there is no such file, or if it is damaged.
std::int64_t best_step(const std::string& folder);
/// The folder of a run's checkpoints, if `path` is a run's output.dir; else `path`.
std::string checkpoints_of(const std::string& path);

/// Whether DIR holds a checkpoint, intact or not. For resume = "auto": false means a fresh start.
/// Does not throw if the folder does not exist. Call it on rank 0 and broadcast the result.
inline bool has_checkpoint(const std::string& folder) { return !steps_in(folder).empty(); }

/// Further files of a checkpoint: name and contents ("state.json", "config.toml").
using StateTexts = std::map<std::string, std::string>;

/// Elements of a parameter that a file holds.
struct StoredSlice {
  std::int64_t parameter = 0;  ///< index into CheckpointIndex::parameters
  Slice part;                  ///< offset and owned are not used

  bool operator==(const StoredSlice&) const = default;
};

/// The slices of one block that a rank owns, end to end, stored once for each of its kinds.
struct StoredBlock {
  std::vector<StoredSlice> slices;
  std::map<std::string, std::int64_t> offsets;  ///< kind -> offset in the file, in bytes
  struct Coded {
    ValueCode code = ValueCode::f32;
    std::int64_t absmax = 0;  ///< offset of their absmax; 0 without
    bool operator==(const Coded&) const = default;
  };
  std::map<std::string, Coded> coded = {};  ///< of the kinds that are not f32
  ValueCode code_of(const std::string& kind) const {
    const auto found = coded.find(kind);
    return found == coded.end() ? ValueCode::f32 : found->second.code;
  }
  bool operator==(const StoredBlock&) const = default;
};

struct StoredFile {
  std::string name;  ///< within the checkpoint's folder
  std::int64_t bytes = 0;
  std::vector<std::uint64_t> checksums;  ///< one for each piece of kPieceBytes
  std::vector<StoredBlock> blocks;
  bool operator==(const StoredFile&) const = default;
};

struct StoredText {
  std::int64_t bytes = 0;
  std::uint64_t checksum = 0;
  bool operator==(const StoredText&) const = default;
};

/// The contents of index.json: the location and checksums of all data of a checkpoint. The text is
/// JSON that ends with its own checksum:
///
///   {"format": "axonn checkpoint", "version": 1, "step": 200, "ranks": 4,
///    "kinds": ["master", ...], "parameters": [["wte.weight", 251, 96], ...],
///    "texts": [["state.json", 87, "0123456789abcdef"], ...],
///    "files": [{"name": "rank-00000.safetensors", "bytes": 4096, "xxh3": ["0123...", ...],
///               "blocks": [{"offsets": {"master": 264, ...},
///                           "slices": [parameter, row, rows, col, cols, begin, end, ...]}]}],
///    "xxh3": "0123456789abcdef"}
///
/// The version is 2 if a block has "coded": {"exp_avg": ["dynamic", offset of absmax], ...}, the
/// kinds that are not f32.
struct CheckpointIndex {
  std::int64_t step = 0;
  std::int64_t ranks = 0;
  std::vector<std::string> kinds;
  std::vector<StoredParameter> parameters;
  std::map<std::string, StoredText> texts;
  std::vector<StoredFile> files;
  bool operator==(const CheckpointIndex&) const = default;
};

std::string to_text(const CheckpointIndex& index);

/// Throws UsageError with the path and the fault unless the text is an intact index whose numbers
/// are consistent.
CheckpointIndex parse_index(std::string_view text, const std::string& path);

/// Writes the texts and the index, with their entries, into a checkpoint's folder. Returns their
/// bytes. Throws as write_text() does.
std::int64_t write_index(const std::string& folder, CheckpointIndex index, const StateTexts& texts);

/// Adds a rank's part, with its parameters and kinds, to the whole. Throws Error if the two
/// disagree on shapes or kinds.
void merge(CheckpointIndex& whole, CheckpointIndex part);

}  // namespace axonn
