#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "axonn/data/storage/checkpoint/checkpoint_index.h"
#include "axonn/data/storage/checkpoint/stored_pieces.h"
#include "axonn/data/storage/parameter_source.h"
#include "axonn/ranks/comm/communicator.h"

namespace axonn {

/// An intact checkpoint: its index and texts. CheckpointSource reads its values.
///
/// Throws UsageError, naming the file, if something is missing, altered or cut short.
class CheckpointReader {
 public:
  static constexpr std::int64_t kAnyStep = INT64_MAX;
  /// path: a folder DIR/step-N, or the file DIR/best or DIR/latest, which names one; it must be
  /// intact. Or DIR, or a run's output.dir that holds DIR (checkpoints_of()): the checkpoint that
  /// `latest` names, or the newest intact one before it, with a warning for each damaged one; only
  /// steps below `before` are considered. Collective: rank 0 reads the index and broadcasts it; if
  /// that fails, all ranks throw.
  CheckpointReader(Communicator& world, const std::string& path, std::int64_t before = kAnyStep);
  /// For a single rank.
  explicit CheckpointReader(const std::string& path);
  /// One whose files lie on several nodes, and may have elements of each other, with equal values.
  /// Reading its values is collective over the ranks of these nodes.
  CheckpointReader(std::string folder, CheckpointIndex index, StateTexts texts, FilePlaces places);

  /// Reads all files. Throws UsageError, naming the file, if one does not match its checksums.
  void verify_files() const;
  /// Takes rank 0's texts in place of its own. Collective.
  void share_texts(Communicator& world);

  const std::string& folder() const { return folder_; }  ///< DIR/step-N
  std::int64_t step() const { return index_.step; }
  /// The location of all data, and the parameters and kinds.
  const CheckpointIndex& index() const { return index_; }
  /// Throws UsageError if the checkpoint has no such text.
  const std::string& text(const std::string& name) const;
  bool has_text(const std::string& name) const { return texts_.contains(name); }
  /// Whether it holds such values of its parameters: "exp_avg".
  bool has_kind(std::string_view kind) const;
  /// Whether the path was that of a folder of checkpoints, of which it took the newest.
  bool one_of_several() const { return one_of_several_; }
  /// Where its files are; null if they are in its folder.
  const FilePlaces* places() const { return places_ ? &*places_ : nullptr; }
  /// One line for each newer checkpoint that was damaged and skipped.
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  std::string open(std::string path, std::int64_t before);
  std::string open_step(const std::string& folder);
  std::string open_newest(const std::string& folder, std::int64_t before);

  std::string folder_;
  CheckpointIndex index_;
  StateTexts texts_;
  std::optional<FilePlaces> places_;
  std::vector<std::string> warnings_;
  bool one_of_several_ = false;
};

/// The kind of a request for the absmax of the block of each value of `kind`, in f32; 0 where the
/// values are not codes.
std::string absmax_of(const std::string& kind);

/// Reads the parameters of a checkpoint, of any kind that it holds, written on any grid. Codes are
/// handed on as their values in f32. Verifies
/// every byte that it uses: the first run of elements in a piece of kPieceBytes reads and verifies
/// the whole piece. Each read() goes through every file once, front to back, only where the file
/// holds wanted elements. Collective only if the files lie on several nodes. Holds a few pieces.
class CheckpointSource final : public ParameterSource {
 public:
  /// The reader must outlive it. `kinds` are those that will be read; the first is what requests
  /// for "master" get, so that averages can take the place of the weights. Throws UsageError with a
  /// list of the kinds that the checkpoint lacks and of the parameters that are missing on one side
  /// or differ in shape. The checkpoint may have further ones that `passed_over` names; null: none.
  CheckpointSource(const CheckpointReader& reader, std::vector<StoredParameter> parameters,
                   const std::vector<std::string>& kinds = {"master"},
                   const std::function<bool(std::string_view parameter)>& passed_over = {});

  /// Before anything is read, throws UsageError if the checkpoint lacks some of the wanted elements
  /// or, unless its files lie on several nodes, has them twice. While reading, throws UsageError
  /// with the file, and with the parameter if the data is altered.
  std::int64_t read(std::span<const SliceRequest> wanted, const TakeValues& take) override;

 private:
  /// A stored slice and the location of its elements.
  struct Location {
    const StoredSlice* slice = nullptr;
    const StoredBlock* block = nullptr;
    std::int64_t file = 0;
    std::int64_t first = 0;         // elements of the block's earlier slices
    std::int64_t first_blocks = 0;  // of kCodeBlock, of these slices
  };
  /// Elements that are contiguous both in a file and in the caller's buffer.
  struct Run {
    std::int64_t file = 0;    // index into CheckpointIndex::files
    std::int64_t offset = 0;  // in the file, in bytes
    std::int64_t count = 0;   // elements
    ValueCode code = ValueCode::f32;
    std::int64_t absmax = 0, at = 0;  // of codes: offset of the absmax, and the first code's number
    bool of_absmax = false;           // whether that is wanted
    std::size_t request = 0;
    std::int64_t to = 0;  // element of the request's buffer
  };

  void add_runs(const SliceRequest& wanted, const Slice& slice, std::size_t request,
                std::vector<Run>& runs) const;
  void read_run(const Run& run, const std::string& parameter, const TakeValues& take);
  void read_codes(const Run& run, const std::string& parameter, const TakeValues& take);
  void read_bytes(std::int64_t file, std::int64_t at, std::span<std::byte> to,
                  const std::string& parameter);

  const CheckpointIndex& index_;
  std::string weights_;  // the kind that requests for "master" get
  std::map<std::string, std::int64_t, std::less<>> indices_;  // of parameters in the index
  std::vector<std::vector<Location>> locations_;              // by index
  const FilePlaces* places_;                                  // null: in one folder
  std::unique_ptr<StoredPieces> pieces_;
};

}  // namespace axonn
