#include "axonn/use/memorize/origin.h"

#include <set>

#include <fmt/format.h>
#include <unistd.h>

#include "axonn/foundation/base/host.h"
#include "axonn/ranks/comm/texts.h"
#include "axonn/run/load/loaded_model.h"

namespace axonn {

std::string describe_machine(Communicator& world, const Device* device) {
  std::set<std::string> hosts;
  gather_texts(world, host_name(), [&](std::string host) { hosts.insert(std::move(host)); });
  const std::string ranks = fmt::format("{} rank{}", world.size(), world.size() == 1 ? "" : "s"),
                    where =
                        hosts.size() == 1 ? *hosts.begin() : fmt::format("{} hosts", hosts.size());
  const auto cores = ::sysconf(_SC_NPROCESSORS_ONLN);  // of the host: a rank may be bound to some
  return fmt::format(
      "{} on {}: {}", ranks, where,
      device && !device->uuid().empty()
          ? device->name()
          : fmt::format("{}, {} core{}", processor_name(), cores, cores == 1 ? "" : "s"));
}

}  // namespace axonn
