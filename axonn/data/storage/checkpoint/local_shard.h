#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "axonn/data/storage/checkpoint/checkpoint_index.h"
#include "axonn/foundation/base/files.h"
#include "axonn/foundation/base/hash.h"
#include "axonn/ranks/comm/communicator.h"
#include "axonn/ranks/comm/hosts.h"

/// Local checkpoints: the state of one rank, beside the checkpoints that all ranks share.
///
///   FOLDER/NODE/RUN/step-57/rank-00003-START/index.json            a checkpoint of one rank
///   FOLDER/NODE/RUN/step-57/rank-00003-START/rank-00003.safetensors
///   FOLDER/NODE/RUN/step-57/rank-00000-START/state.json, ...       rank 0 has the texts
///
/// A shard holds all elements that its rank has, also those of which another rank is the owner, so
/// that a rank needs no other one's shard. RUN and START are 16 hex digits of the run and of the
/// start that wrote it. A node has the shards of its ranks, and copies of those of another node.

namespace axonn {

/// Where the shards of one node and run are.
struct LocalStore {
  std::string folder;  ///< a file system that each node has for itself
  std::string node;    ///< the name of this rank's node
  std::string run;     ///< 16 hex digits

  std::string of_run() const { return folder + '/' + node + '/' + run; }
};

/// A shard on this node, judged by its name.
struct LocalShard {
  std::int64_t step = 0;
  int rank = 0;
  std::string start;
  std::string folder(const LocalStore& store) const;
};
/// Those of the run, in a fixed order. None if the folder cannot be read.
std::vector<LocalShard> shards_in(const LocalStore& store);

/// Makes the folder and the node's. In one that all users share, as /dev/shm and /tmp are, they are
/// shared, too: runs of several users may come to the same node. Does not throw.
void make_folders(const LocalStore& store);

/// Removes a folder that other ranks of the node may remove at the same time. Does not throw.
void remove_beside_others(const std::string& folder);

/// Removes all shards of the run on this node. Does not throw; several ranks may do it.
void remove_shards(const LocalStore& store);

/// Removes those of all other steps. Returns the bytes of those that stay on this node.
std::int64_t keep_step(const LocalStore& store, std::int64_t step);

/// The ranks by their nodes' names. Collective.
Hosts nodes_of(Communicator& world, const std::string& node);
/// The ranks by the folders that they see: those of one node and of one host. Collective.
Hosts views_of(Communicator& world, const LocalStore& store);

/// Moves the run's shards in other nodes' folders on this host into this node's, but for nodes that
/// have ranks on this host, and for other hosts' folders on a file system that they share. A node
/// may have another number than when they were written. Does not throw. Collective.
void adopt_shards(Communicator& world, const LocalStore& store);

/// The rank on another node that keeps a copy of a rank's shard; -1 if all are on one node.
int keeper_of(const Hosts& nodes, int rank);

/// Writes a shard piece by piece. After a fault it does nothing more, so that its caller can go on
/// with what other ranks expect. It exists under its name only when it is whole.
class ShardWriter {
 public:
  /// folder: LocalShard::folder(), of this rank's shard.
  ShardWriter(std::string folder, int rank);

  /// The next bytes of the file.
  void append(std::span<const std::byte> piece);
  /// The checksums of the file; empty if there was none.
  std::vector<std::uint64_t> finish_file();
  /// Writes texts and index, and gives the folder its name.
  void publish(const CheckpointIndex& index, const StateTexts& texts);
  /// publish() with what tail_of() made, if the file's checksums are those in its index.
  void publish(const std::string& tail);

  /// Why the shard is not there; "" without a fault.
  const std::string& fault() const { return fault_; }

 private:
  void fail(const std::string& why);
  void attempt(const std::function<void()>& work);

  std::string path_, name_, fault_;
  std::optional<TemporaryFolder> folder_;
  std::optional<OutputFile> file_;
  PieceHasher hasher_;
};

/// Index and texts as one text: what of a shard is not its file.
std::string tail_of(CheckpointIndex index, const StateTexts& texts);

/// What tail_of() was made of. Throws UsageError with the path if it is altered, and if it is a
/// fault.
std::pair<CheckpointIndex, StateTexts> parse_tail(const std::string& tail, const std::string& path);

/// In its place, why the sender has no whole shard: publish() then fails with that.
std::string fault_tail(const std::string& fault);

/// A shard that goes to another rank.
struct OutgoingShard {
  int to = -1;             ///< rank of the group; -1: nobody, but its functions are called
  std::int64_t bytes = 0;  ///< of its file
  /// Its bytes from `at` on, front to back. They stay until the next call.
  std::function<std::span<const std::byte>(std::int64_t at, std::int64_t count)> piece;
  /// Called while piece() is on its way.
  std::function<void(std::span<const std::byte>)> meanwhile = {};
  std::function<std::string()> tail;  ///< after the last piece
};
/// A shard that comes from another rank.
struct IncomingShard {
  int from = 0;
  std::unique_ptr<ShardWriter> writer;
};

using WaitForMessage = std::function<void(Work&)>;

/// Sends and receives shards, 16 MiB at a time. The group is used by the calling thread alone. If
/// that is not the rank's, `wait` waits for each message in its place. A fault of a writer disturbs
/// no other shard. Throws Aborted.
void exchange_shards(Communicator& group, const OutgoingShard* out, std::vector<IncomingShard>& in,
                     const WaitForMessage& wait = {});

}  // namespace axonn
