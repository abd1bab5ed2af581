#include "axonn/storage/parameter_source.h"

#include "axonn/base/check.h"

namespace axonn {

void ParameterSource::read_slice(const std::string& parameter, Slice slice, std::span<float> out) {
  AXONN_CHECK(slice.count() == std::ssize(out), parameter, ": ", out.size(), " elements for ",
              slice.count());
  slice.offset = 0;
  const SliceRequest wanted{.parameter = parameter, .slices = {slice}};
  read({&wanted, 1}, [&](std::size_t, std::int64_t offset, StoredType type, auto values) {
    to_floats(type, values, out.subspan(offset, values.size() / bytes_of(type)));
  });
}

void Differences::refuse_if_any(const std::string& what) const {
  if (count_ == 0) return;
  refuse(what, ':', text_, count_ > kShown ? concat("\n  and ", count_ - kShown, " more") : "");
}

}  // namespace axonn
