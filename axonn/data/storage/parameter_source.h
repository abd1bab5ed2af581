#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "axonn/compute/tensor/dtype.h"
#include "axonn/data/storage/safetensors/safetensors.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/grid/layout.h"
#include "axonn/ranks/comm/communicator.h"

namespace axonn {

/// A parameter as files know it: a named matrix.
struct StoredParameter {
  std::string name;       ///< global
  std::int64_t rows = 0;  ///< unpadded; vectors are (n, 1)
  std::int64_t cols = 1;

  std::int64_t count() const { return rows * cols; }
  bool operator==(const StoredParameter&) const = default;
};

/// The elements of one parameter that a caller wants.
struct SliceRequest {
  std::string parameter;
  std::string kind = "master";  ///< or an optimizer's buffer, which only checkpoints hold
  std::vector<Slice> slices;    ///< offsets count in a buffer of the caller
  /// The ranks that want other columns of the same rows, in column order: they may share the
  /// reading of whole rows and exchange columns. A rank reads alone if this is null.
  Communicator* across = nullptr;
};

/// Receives elements of wanted[i] in their stored type, aligned to it. They belong at element
/// `offset` of the buffer that the request's slices refer to.
using TakeValues = std::function<void(std::size_t i, std::int64_t offset, StoredType type,
                                      std::span<const std::byte> values)>;

/// Reads the parameters of a model from files, slice by slice. The constructors of the sources
/// compare files and model, so that all differences are listed before any value is read.
class ParameterSource {
 public:
  virtual ~ParameterSource() = default;
  ParameterSource(const ParameterSource&) = delete;
  ParameterSource& operator=(const ParameterSource&) = delete;

  /// The folder, for messages.
  const std::string& path() const { return path_; }
  const std::vector<StoredParameter>& parameters() const { return parameters_; }

  /// Calls `take` for every wanted element once, in an order that suits the files, a few MiB at a
  /// time. Returns the bytes read by this rank. Collective over each `across`; a rank that cannot
  /// read a file throws only when its part in the exchanges is done. Throws UsageError if a file is
  /// at fault, Error if there is no such parameter.
  virtual std::int64_t read(std::span<const SliceRequest> wanted, const TakeValues& take) = 0;

  /// Reads whole blocks of codes as the file has them, if a parameter is stored in blocks of this
  /// kind: records of its largest unit, from block `first` of the parameter on, counted row after
  /// row. Returns the bytes read; nothing if it is not stored so. Throws as read() does.
  virtual std::optional<std::int64_t> read_records(const std::string& /*parameter*/,
                                                   Quantization /*kind*/, std::int64_t /*first*/,
                                                   std::span<std::byte> /*records*/) {
    return {};
  }

  /// The kind of codes as which a parameter is stored, if read_records() reads it so; else none.
  virtual Quantization stored_as(const std::string& /*parameter*/) const {
    return Quantization::none;
  }

  /// Fills out (slice.count()) with the elements of one slice; slice.offset is ignored. Returns the
  /// bytes read, and throws, as read() does.
  std::int64_t read_slice(const std::string& parameter, Slice slice, std::span<float> out) {
    AXONN_CHECK(slice.count() == std::ssize(out), parameter, ": ", out.size(), " elements for ",
                slice.count());
    slice.offset = 0;
    const SliceRequest wanted{.parameter = parameter, .slices = {slice}};
    return read({&wanted, 1}, [&](std::size_t, std::int64_t offset, StoredType type, auto values) {
      to_floats(type, values, out.subspan(offset, values.size() / bytes_of(type)));
    });
  }

 protected:
  ParameterSource(std::string path, std::vector<StoredParameter> parameters)
      : path_(std::move(path)), parameters_(std::move(parameters)) {}

 private:
  std::string path_;
  std::vector<StoredParameter> parameters_;
};

/// Collects the differences between files and a model for one error message, a line each. The
/// message shows the first few.
class Differences {
 public:
  template <typename... Parts>
  void add(const Parts&... parts) {
    if (++count_ <= kShown) text_ += concat("\n  ", parts...);
  }
  /// Throws UsageError, "WHAT:" and the list, if there are any.
  void refuse_if_any(const std::string& what) const {
    if (count_ == 0) return;
    refuse(what, ':', text_, count_ > kShown ? concat("\n  and ", count_ - kShown, " more") : "");
  }

 private:
  static constexpr int kShown = 12;
  int count_ = 0;
  std::string text_;
};

}  // namespace axonn
