#include "axonn/ranks/comm/texts.h"

#include <cstdint>
#include <span>

#include "axonn/foundation/base/check.h"

namespace axonn {

namespace {

Buffer bytes_in(std::string& text) {
  return {text.data(), static_cast<std::int64_t>(text.size()), DType::u8};
}

}  // namespace

std::string fault_of(const std::function<void()>& work) {
  try {
    work();
    return {};
  } catch (const Aborted&) {
    throw;
  } catch (const std::exception& error) {
    const std::string what = error.what();
    return what.empty() ? "unknown error" : what;
  }
}

void agree(Communicator& world, const std::string& asked, const std::string& fault) {
  std::int32_t first = fault.empty() ? world.size() : world.rank();
  world.all_reduce(buffer<std::int32_t>({&first, 1}), "faults", ReduceOp::min).wait();
  if (first == world.size()) return;
  throw AgreedError(
      concat(asked, " failed on rank ", first, ": ", broadcast_text(world, fault, first)));
}

std::string broadcast_text(Communicator& world, std::string text, int root) {
  auto length = static_cast<std::int64_t>(text.size());
  world.broadcast(buffer<std::int64_t>({&length, 1}), root, "text length").wait();
  text.resize(static_cast<std::size_t>(length));
  if (length > 0) world.broadcast(bytes_in(text), root, "text").wait();
  return text;
}

std::vector<std::string> broadcast_texts(Communicator& world, std::vector<std::string> texts) {
  auto count = static_cast<std::int64_t>(texts.size());
  world.broadcast(buffer<std::int64_t>({&count, 1}), 0, "texts").wait();
  texts.resize(static_cast<std::size_t>(count));
  for (std::string& text : texts) text = broadcast_text(world, std::move(text), 0);
  return texts;
}

void gather_texts(Communicator& world, const std::string& mine,
                  const std::function<void(std::string text)>& take) {
  std::vector<std::int64_t> lengths(static_cast<std::size_t>(world.size()));
  auto length = static_cast<std::int64_t>(mine.size());
  world
      .all_gather(buffer<std::int64_t>(lengths), buffer<std::int64_t>({&length, 1}), "text lengths")
      .wait();
  std::string text = mine;
  if (world.rank() != 0) {
    if (length > 0) world.send(bytes_in(text), 0, "text").wait();
    return;
  }
  take(std::move(text));
  for (int rank = 1; rank < world.size(); ++rank) {
    std::string other(static_cast<std::size_t>(lengths[static_cast<std::size_t>(rank)]), '\0');
    if (!other.empty()) world.recv(bytes_in(other), rank, "text").wait();
    take(std::move(other));
  }
}

}  // namespace axonn
