#include "axonn/comm/watch.h"

#include <vector>

#include "axonn/base/check.h"

namespace axonn {

namespace {

/// Maximum number of ranks whose last call a report names. A report on thousands of ranks needs
/// only a few.
constexpr int kPlacesNamed = 8;

using Standing = PeerReport::Standing;

std::vector<int> ranks_that(Standing standing, std::span<const PeerReport> peers) {
  std::vector<int> ranks;
  for (const PeerReport& peer : peers)
    if (peer.standing == standing) ranks.push_back(peer.world_rank);
  return ranks;
}

void add_ranks(std::ostream& text, std::string_view what, const std::vector<int>& ranks) {
  if (ranks.empty()) return;
  text << "; " << what << ": " << (ranks.size() == 1 ? "rank " : "ranks ") << list_ranks(ranks);
}

}  // namespace

std::string describe(const CallId& id) {
  if (id.sequence < 0) return "no collective";
  std::ostringstream text;
  text << name_of(id.operation);
  if (!id.label.empty()) text << " '" << id.label << '\'';
  text << " (call " << id.sequence << " of group " << id.group << ')';
  return text.str();
}

std::string hang_report(const std::string& call, double seconds,
                        std::span<const PeerReport> peers) {
  std::ostringstream text;
  text << call << " is not done after " << seconds << " s";
  add_ranks(text, "arrived", ranks_that(Standing::arrived, peers));
  const std::vector<int> elsewhere = ranks_that(Standing::elsewhere, peers);
  add_ranks(text, "did not arrive", elsewhere);
  int named = 0;
  for (const PeerReport& peer : peers)
    if (peer.standing == Standing::elsewhere && named++ < kPlacesNamed)
      text << (named == 1 ? " (" : ", ") << "rank " << peer.world_rank << " last started "
           << describe(peer.last);
  if (named > kPlacesNamed) text << ", ...";
  if (named > 0) text << ')';
  add_ranks(text, "returned without it", ranks_that(Standing::returned, peers));
  add_ranks(text, "gave no answer", ranks_that(Standing::silent, peers));
  return text.str();
}

std::string list_ranks(std::span<const int> ranks) {
  std::ostringstream text;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    text << (i > 0 ? ", " : "") << ranks[i];
    if (last > i) text << (last == i + 1 ? ", " : "-") << ranks[last];
    i = last + 1;
  }
  return text.str();
}

}  // namespace axonn
