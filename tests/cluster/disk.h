#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <sys/stat.h>
#include <sys/types.h>

#include "tests/cluster/draws.h"
#include "tests/cluster/scheduler.h"

namespace axonn::cluster {

/// Some calls that fail or take long, by their numbers among the job's calls for files.
struct DiskFault {
  enum class Kind { full, broken, slow, few_bytes };
  Kind kind = Kind::full;
  std::string below;                  ///< the folder of the files
  std::int64_t first = 0, last = -1;  ///< calls
  double seconds = 0;                 ///< of each call of a slow disk
};

/// Syncs that do nothing although they say that they have: planted faults.
struct ForgottenSyncs {
  bool files = false, folders = false;
};

/// The files below a folder of this process, as they are on disks that lose power: each change
/// that is not synced may be lost then. Calls are written through at once; what they replace is
/// kept beside the folder, until a sync makes the change last.
///
/// A write lasts when its file is synced, a name (that a file or folder is made, renamed or
/// removed) when its folder is. Of the other changes of a file, and of a folder, the first ones
/// stay, as many as are drawn.
class Disk {
 public:
  /// `folder` is absolute, without links, and exists; so does `kept`, on the same file system.
  Disk(std::string folder, std::string kept, std::vector<DiskFault> faults, Account& account,
       ForgottenSyncs forgotten);

  bool has(const std::string& path) const { return path.starts_with(folder_); }
  /// Counts a call for this path. Returns the fault that befalls it, or null.
  const DiskFault* fault_of_call(const std::string& path);
  std::int64_t calls() const { return account_.file_calls; }
  /// Whether the disk is full now.
  bool is_full(const std::string& path) const;

  // What a call is about to change, or has changed.
  void will_truncate(const std::string& path, std::int64_t bytes);
  void opened(int descriptor, const std::string& path, bool made);
  bool tracks(int descriptor) const;
  void will_write(int descriptor, std::int64_t offset, std::int64_t bytes);
  void synced(int descriptor);
  /// The call to sync failed: what was not on disk by then never comes there.
  void sync_failed(int descriptor);
  void made_folder(const std::string& path);
  void will_rename(const std::string& to);
  void renamed(const std::string& from, const std::string& to);
  void exchanged(const std::string& one, const std::string& other);
  void will_remove(const std::string& path);
  void removed(const std::string& path);
  std::string path_of(int descriptor) const;

  /// All that is not synced is lost, or a part of it.
  void lose_power(Draws& draws);

 private:
  struct Write {
    std::int64_t offset, bytes;  // now
    std::int64_t size_before;
    std::string before;  // the bytes that it replaced
    bool lasts_never = false;
  };
  struct File {
    int descriptor = -1;  // to read and write it
    std::string name;     // when it was opened
    std::vector<Write> writes;
  };
  struct Name {
    enum class Kind { made, renamed, exchanged, removed, removed_folder };
    Kind kind;
    int folder;               // index in folders_
    std::string name, other;  // within it; other: after a rename
    int kept = -1;  // number of the file that was replaced or removed, or of the folder; -1: none
  };

  int folder_of(const std::string& path);
  int keep(const std::string& path);
  std::string kept_path(int number) const;
  File* file_of(int descriptor);
  void lose_writes(File& file, Draws& draws);
  void undo(const Name& name);

  const std::string folder_, kept_;
  const std::vector<DiskFault> faults_;
  Account& account_;
  const ForgottenSyncs forgotten_;
  std::map<ino_t, File> files_;  // that were opened to write
  std::vector<int> folders_;     // descriptors
  std::map<ino_t, int> folder_numbers_;
  std::vector<Name> names_;  // that no sync has made last, in the order of the calls
  int kept_count_ = 0, kept_now_ = -1;
  bool kept_folder_now_ = false;
};

}  // namespace axonn::cluster
