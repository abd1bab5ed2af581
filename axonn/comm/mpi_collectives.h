#pragma once

#include <deque>
#include <vector>

#include "axonn/comm/mpi_algorithms.h"

namespace axonn {

/// An all_reduce of at most this many bytes sends everything to everyone: one exchange, not two.
inline constexpr std::int64_t kSmallAllReduce = 8 << 10;

/// A broadcast of at most this many bytes goes from the root to everyone.
inline constexpr std::int64_t kSmallBroadcast = 64 << 10;

/// all_gather, all_to_all, send and recv: one exchange, straight between the callers' buffers.
class Exchange final : public MpiAlgorithm {
 public:
  using MpiAlgorithm::MpiAlgorithm;
  ~Exchange() override;

 protected:
  void start() override;
  bool step() override;

 private:
  void start_all_to_all();
  Messages messages_;
  StagingPool::Block copy_;  // of the inp of an all_to_all in place
};

/// Every rank gets all ranks' data, and sums them.
class SmallAllReduce final : public MpiAlgorithm {
 public:
  using MpiAlgorithm::MpiAlgorithm;
  ~SmallAllReduce() override;

 protected:
  void start() override;
  bool step() override;

 private:
  Messages messages_;
  StagingPool::Block staging_;
};

/// reduce_scatter and large all_reduce. Part r of the data is summed by rank r, in segments, so
/// that staging stays small and a segment's sum overlaps the next one's messages; an all_reduce
/// then gathers each summed segment.
class SegmentedReduce final : public MpiAlgorithm {
 public:
  SegmentedReduce(MpiContext& context, const MpiGroup& group, const Call& call,
                  std::int64_t sequence);
  ~SegmentedReduce() override;

 protected:
  void start() override;
  bool step() override;

 private:
  struct Segment {
    std::int64_t index = 0;
    bool gathering = false;  // its sum is made
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
  std::int64_t step_ = 0;      // elements of a segment of it
  std::int64_t segments_ = 0;  // of a part
  std::int64_t begun_ = 0;
  std::deque<Segment> in_flight_;
};

/// Small: from the root to everyone. Large: the root deals out parts, which all then gather.
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

/// In round k every rank hears from the rank 2^k before it: after log2(size) rounds, from all.
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
