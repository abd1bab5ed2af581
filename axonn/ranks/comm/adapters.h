#pragma once

#include <string>
#include <vector>

namespace axonn {

/// An adapter of this host to a network, as the system describes it.
struct NetworkAdapter {
  std::string name;        ///< "hsn0", "mlx5_0"
  std::string kind;        ///< "Slingshot", "InfiniBand" or "Ethernet"
  double bytes_per_s = 0;  ///< that it advertises; 0: unknown

  bool operator==(const NetworkAdapter&) const = default;
};

/// The adapters that are connected, by name. Interfaces that are not hardware are left out. Of an
/// adapter that is both, only the InfiniBand device is listed. Reads /sys/class/net and
/// /sys/class/infiniband below `root`, which tests set.
std::vector<NetworkAdapter> network_adapters(const std::string& root = "");

/// Whether one of them belongs to Slingshot.
bool has_slingshot(const std::vector<NetworkAdapter>& adapters);

}  // namespace axonn
