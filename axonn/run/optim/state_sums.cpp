#include "axonn/run/optim/state_sums.h"

#include <algorithm>
#include <utility>

#include <omp.h>

#include "axonn/compute/ops/mend_bit.h"
#include "axonn/compute/tensor/dynamic_map.h"
#include "axonn/foundation/base/check.h"

namespace axonn {

namespace {

constexpr const char* kCopy = "the compute copy";

/// The byte of an element, or of the word of 32 bits that has its first byte.
std::int64_t word_of(const View& data, std::int64_t element) {
  return element * bytes_of(data.dtype) / 4 * 4;
}

}  // namespace

StateSums::~StateSums() {
  for (const Group& of : groups_) of.group->on_set({});
}

std::vector<StateSums::Run> StateSums::runs_of(const std::vector<NamedSlice>& slices,
                                               std::int64_t divisor) {
  std::vector<Run> runs;
  for (const auto& [spec, slice] : slices)
    runs.push_back(
        {spec, slice.offset / divisor, (slice.offset + slice.count() + divisor - 1) / divisor});
  std::ranges::sort(runs, {}, &Run::begin);
  return runs;
}

StateSums::Buffer StateSums::make(const std::string& kind, const Tensor& tensor, Covers covers,
                                  const std::vector<Run>& runs, std::int64_t cut) {
  const View data = tensor.view();
  AXONN_CHECK(data.rows == 1, kind, ": a buffer of state is one row, got ", data);
  const std::int64_t each = covers == Covers::absmax ? kCell / DynamicMap::kBlock : kCell;
  Buffer buffer{.kind = kind, .tensor = tensor, .covers = covers, .cells = {}};
  std::int64_t at = 0;
  const auto add_until = [&](const ParameterSpec* of, std::int64_t end) {
    for (; at < end; at = std::min(end, at + each)) buffer.cells.push_back({at, of});
  };
  for (const Run& run : runs) {
    add_until(nullptr, std::min(run.begin, cut));
    add_until(nullptr, run.begin);
    add_until(run.of, run.end);
  }
  add_until(nullptr, cut);
  add_until(nullptr, data.cols);
  return buffer;
}

void StateSums::add_group(ParameterGroup& group, const std::string& master) {
  const Tensor shard = group.compute_copy();
  const std::int64_t mine = group.piece_of_compute().cols;
  const bool coded = group.quantization() != Quantization::none;
  Group& made = groups_.emplace_back();
  made.group = &group;
  made.is_master = !group.frozen() && shard.dtype() == DType::f32;
  for (int data = 0; data < grid_.extent(Axis::data); ++data) {  // each cut as on its own rank
    Coords at = grid_.coords();
    at.at_axis[static_cast<int>(Axis::data)] = data;
    const FlatSizes sizes = group.layout().sizes(at);
    std::vector<Run> runs;
    if (!coded) runs = runs_of(group.layout().piece_slices(at, sizes));
    const std::int64_t cut = std::clamp<std::int64_t>(
        sizes.decayed - group.layout().piece_begin(at, sizes), 0, group.frozen() ? 0 : sizes.piece);
    const Tensor piece = shard.col_range(data * mine, mine);
    if (data == grid_.coord(Axis::data))
      made.weights = make(made.is_master ? master : kCopy, piece, Covers::piece, runs, cut);
    else
      made.others.push_back({data, make(kCopy, piece, Covers::all, runs, cut)});
  }
  if (!group.frozen() && !made.is_master)
    add(groups_.size() - 1, master, group.master_copy(), Covers::piece,
        runs_of(group.piece_slices()));
}

void StateSums::add(std::size_t group, const std::string& kind, const Tensor& tensor, Covers covers,
                    const std::vector<Run>& runs) {
  if (tensor.count() == 0) return;
  Group& of = groups_[group];
  const std::int64_t cut = covers == Covers::piece ? of.group->decayed() : 0;
  of.state.push_back(make(kind, tensor, covers, runs, cut));
}

void StateSums::add_average(std::size_t group, const std::string& kind, const Tensor& tensor) {
  Group& of = groups_[group];
  of.average =
      make(kind, tensor, Covers::piece, runs_of(of.group->piece_slices()), of.group->decayed());
}

template <typename F>
void StateSums::for_buffers(Group& of, const F& f) {
  f(of.weights);
  for (auto& [data, buffer] : of.others) f(buffer);
  for (Buffer& buffer : of.state) f(buffer);
  if (of.average) f(*of.average);
}

void StateSums::allocate() {
  std::int64_t columns = 0;
  const auto place = [&](Buffer& buffer) {
    buffer.column = columns;
    columns += std::ssize(buffer.cells) + 1;
  };
  for (Group& of : groups_) {  // at the same columns on all ranks of data
    place(of.weights);
    for (const auto& [data, other] : of.others)
      columns = std::max(columns, of.weights.column + std::ssize(other.cells) + 1);
  }
  sent_ = columns;
  for (Group& of : groups_) {
    for (auto& [data, other] : of.others) {
      other.gathered = data * sent_ + of.weights.column;
      place(other);
    }
    for (Buffer& buffer : of.state) place(buffer);
    if (of.average) place(*of.average);
  }
  columns_ = columns;
  table_.assign(kRows * columns, 0);
  if (grid_.extent(Axis::data) > 1) gathered_.assign(grid_.extent(Axis::data) * sent_, 0);
  for (Group& of : groups_)
    for_buffers(of, [&](Buffer& buffer) {
      buffer.group = of.group->name();
      std::int64_t* to = row(kBounds) + buffer.column;
      for (const Cell& cell : buffer.cells) *to++ = word_of(buffer.data(), cell.begin);
      *to = buffer.data().cols * bytes_of(buffer.data().dtype);
    });
  backend_ = make_cpu_backend(omp_get_max_threads());  // as many as the rank has
  for (std::size_t i = 0; i < groups_.size(); ++i)
    groups_[i].group->on_set([this, i](std::int64_t begin, std::int64_t count) {
      if (!kept_) return;
      const Group& group = groups_[i];
      if (group.group->frozen()) return;  // publish_values() follows
      gathering_.wait();                  // of the sums that are replaced here
      sum(group.is_master ? group.weights : group.state.front(), begin, begin + count, now());
    });
}

/// Of the cells with elements [begin, end).
void StateSums::sum(const Buffer& buffer, std::int64_t begin, std::int64_t end, std::int64_t to) {
  const auto& cells = buffer.cells;
  if (begin >= end) return;
  // A cell that begins within a word has the element before it, too, which may be the last one.
  const auto begin_of = [&](const Cell& cell) { return word_of(buffer.data(), cell.begin); };
  const std::int64_t end_byte = end * bytes_of(buffer.data().dtype);
  const std::int64_t first = std::ranges::upper_bound(cells, begin, {}, &Cell::begin) -
                             cells.begin() - 1,
                     last = std::ranges::lower_bound(cells, end_byte, {}, begin_of) - cells.begin();
  const std::int64_t size = bytes_of(buffer.data().dtype), from = byte_of(buffer, first) / size;
  const auto columns = [&](std::int64_t of, std::int64_t count) {
    return View{row(of) + buffer.column + first, DType::i64, 1, count, count};
  };
  backend_->run(
      ops::WordSums{.out = columns(to, last - first),
                    .inp = buffer.data().col_range(from, byte_of(buffer, last) / size - from),
                    .bounds = columns(kBounds, last - first + 1)});
  for (std::int64_t cell = first; to == kFound && cell < last; ++cell) compare(buffer, cell);
}

std::int64_t StateSums::byte_of(const Buffer& buffer, std::int64_t cell) {
  const View data = buffer.data();
  return cell < std::ssize(buffer.cells) ? word_of(data, buffer.cells[cell].begin)
                                         : data.cols * bytes_of(data.dtype);
}

void StateSums::compare(const Buffer& buffer, std::int64_t cell) {
  const std::int64_t found = row(kFound)[buffer.column + cell],
                     right = buffer.gathered ? gathered_[*buffer.gathered + cell]
                                             : row(now())[buffer.column + cell];
  if (found == right) return;
  ++faults_;
  const std::int64_t begin = byte_of(buffer, cell), end = byte_of(buffer, cell + 1);
  auto* const memory = static_cast<std::byte*>(buffer.data().data);
  const ParameterSpec* const spec = buffer.cells[cell].of;
  const std::string what = concat(buffer.kind, " of ", spec ? spec->name : buffer.group);
  if (mend_bit({memory + begin, memory + end}, found, right))
    mended_.push_back(what);
  else if (lost_.empty())
    lost_ = what;
}

void StateSums::sum(const Buffer& buffer, std::int64_t to) {
  if (!buffer.tensor.in_file()) return sum(buffer, 0, buffer.data().cols, to);
  constexpr std::int64_t kAtOnce = 64;  // cells: 4 MiB in f32
  const auto begin_of = [&](std::int64_t cell) {
    return cell < std::ssize(buffer.cells) ? buffer.cells[cell].begin : buffer.data().cols;
  };
  for (std::int64_t cell = 0; cell < std::ssize(buffer.cells); cell += kAtOnce) {
    const std::int64_t begin = begin_of(cell), end = begin_of(cell + kAtOnce);
    sum(buffer, begin, end, to);
    buffer.tensor.col_range(begin, end - begin).put_away(FileAccess::read);
  }
}

void StateSums::sum_part(const Buffer& buffer, const StatePart& part, std::int64_t to) {
  const auto run = [&](std::int64_t begin, std::int64_t end) { sum(buffer, begin, end, to); };
  constexpr std::int64_t kBlock = DynamicMap::kBlock;
  const std::int64_t stored = part.stored, end = stored + part.count;
  if (buffer.covers == Covers::piece) return run(part.begin, part.begin + part.count);
  if (stored < 0 || part.small != (buffer.covers != Covers::full)) return;
  if (buffer.covers == Covers::absmax) return run(stored / kBlock, (end + kBlock - 1) / kBlock);
  if (buffer.covers != Covers::all) run(stored, end);
}

void StateSums::sum_state(const Group& of, const std::optional<StatePart>& part, std::int64_t to) {
  const auto take = [&](const Buffer& buffer) {
    if (part)
      sum_part(buffer, *part, to);
    else
      sum(buffer, to);
  };
  if (of.is_master || to != kFound) take(of.weights);
  for (const Buffer& buffer : of.state) take(buffer);
}

void StateSums::check(std::size_t group, const std::optional<StatePart>& part) {
  sum_state(groups_[group], part, kFound);
}

void StateSums::keep(std::size_t group, const std::optional<StatePart>& part) {
  sum_state(groups_[group], part, next());
}

void StateSums::check_average(std::size_t group) { sum(*groups_[group].average, kFound); }

void StateSums::keep_average(std::size_t group) { sum(*groups_[group].average, next()); }

std::int64_t StateSums::part_end(std::size_t group, std::int64_t at, std::int64_t end) const {
  if (end <= at + kPart) return end;
  const auto& cells = groups_[group].weights.cells;
  auto next = std::ranges::upper_bound(cells, at, {}, &Cell::begin);  // the end of the first cell
  while (next != cells.end() && std::next(next) != cells.end() &&
         std::next(next)->begin <= at + kPart)
    ++next;
  return next == cells.end() ? end : std::min(end, next->begin);
}

void StateSums::gather() {
  if (gathered_.empty()) return;
  gathering_ =
      grid_.along(Axis::data)
          .all_gather(buffer(std::span(gathered_)),
                      buffer(std::span(table_).subspan(now() * columns_, sent_)), "state sums");
}

void StateSums::ignore_publishes() {
  for (Group& of : groups_) of.published = of.group->publishes();
}

void StateSums::begin_step() {
  if (std::exchange(kept_, true)) return;
  for (Group& of : groups_) {
    of.group->shard();
    for_buffers(of, [&](const Buffer& buffer) {
      for (const std::int64_t to : {now(), next()}) sum(buffer, to);
    });
  }
  ignore_publishes();
  gather();
}

bool StateSums::check_copies() {
  begin_step();
  const std::int64_t before = faults_;
  const std::string earlier = std::exchange(lost_, {});
  bool changed = false;
  for (Group& of : groups_) {
    of.group->shard();  // the pieces of other ranks have arrived
    if (std::exchange(of.published, of.group->publishes()) == of.group->publishes()) continue;
    for (const std::int64_t to : {now(), next()}) sum(of.weights, to);
    changed = true;
  }
  if (changed) gather();
  gathering_.wait();
  for (const Group& of : groups_)
    if (of.is_master || of.group->frozen()) sum(of.weights, kFound);
  lost_for_good_ = lost_;
  for (const Group& of : groups_) {
    if (!of.is_master && !of.group->frozen()) sum(of.weights, kFound);
    for (const auto& [data, other] : of.others) sum(other, kFound);
  }
  lost_copy_ = std::exchange(lost_, earlier);
  return faults_ > before;
}

std::string StateSums::finish_update() {
  now_ = 1 - now_;
  gather();
  return std::exchange(lost_, {});
}

std::string StateSums::find_fault() {
  check_copies();  // also of master weights that are copies
  for (const Group& of : groups_) {
    for (const Buffer& buffer : of.state) sum(buffer, kFound);
    if (of.average) sum(*of.average, kFound);
  }
  const std::string fault = std::exchange(lost_, {});
  return lost_for_good_.empty() ? fault : lost_for_good_;
}

}  // namespace axonn
