#pragma once

#include <deque>
#include <vector>

#include "axonn/comm/mpi/mpi_algorithms.h"

namespace axonn {

/// In an all_reduce of at most this many bytes every rank sends all of its data to all ranks: one
/// exchange instead of two.
inline constexpr std::int64_t kSmallAllReduce = 8 << 10;

/// In a broadcast of at most this many bytes the root sends all data to all ranks.
inline constexpr std::int64_t kSmallBroadcast = 64 << 10;

/// all_gather, all_to_all, send and recv: one exchange, directly between the callers' buffers.
class Exchange final : public MpiAlgorithm {
 public:
  using MpiAlgorithm::MpiAlgorithm;

 protected:
  void start() override;
  bool step() override;

 private:
  void start_all_to_all();
  Messages messages_;
  StagingPool::Block copy_;  // a copy of inp, for an all_to_all in place
};

/// A small all_reduce: every rank receives the data of all ranks and sums them.
class SmallAllReduce final : public MpiAlgorithm {
 public:
  using MpiAlgorithm::MpiAlgorithm;

 protected:
  void start() override;
  bool step() override;

 private:
  Messages messages_;
  StagingPool::Block staging_;
};

/// reduce_scatter and large all_reduce. Rank r sums part r of the data in segments, so that staging
/// memory stays small and the sum of a segment overlaps the messages of the next. An all_reduce
/// then gathers each summed segment.
class SegmentedReduce final : public MpiAlgorithm {
 public:
  SegmentedReduce(MpiContext& context, const MpiGroup& group, const Call& call,
                  std::int64_t sequence);

 protected:
  void start() override;
  bool step() override;

 private:
  struct Segment {
    std::int64_t index = 0;
    bool gathering = false;  // its sum is complete
    Messages messages;
    StagingPool::Block staging;
  };
  Buffer slice(int part_of, std::int64_t segment) const;
  void scatter(Segment& segment);
  void sum(Segment& segment);
  void gather(Segment& segment);
  bool advance_segment(Segment& segment, bool may_gather);

  const bool gathers_;
  std::int64_t part_ = 0;      // elements of a rank's part
  std::int64_t step_ = 0;      // elements of a segment of a part
  std::int64_t segments_ = 0;  // segments of a part
  std::int64_t begun_ = 0;
  std::deque<Segment> in_flight_;
};

/// A small broadcast: the root sends all data to all ranks. A large one: the root sends each rank
/// its part, and the ranks then gather the parts from each other.
class Broadcast final : public MpiAlgorithm {
 public:
  using MpiAlgorithm::MpiAlgorithm;

 protected:
  void start() override;
  bool step() override;

 private:
  Buffer part_of(int rank) const;
  bool dealt_ = false;
  Messages first_, rest_;
};

/// In round k every rank receives a message from the rank 2^k before it. After log2(size) rounds it
/// has heard, directly or indirectly, from all ranks.
class Barrier final : public MpiAlgorithm {
 public:
  using MpiAlgorithm::MpiAlgorithm;

 protected:
  void start() override;
  bool step() override;

 private:
  int distance_ = 1;
  Messages messages_;
};

}  // namespace axonn
