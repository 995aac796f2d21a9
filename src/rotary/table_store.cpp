// SPDX-License-Identifier: Apache-2.0
#include "rotary/table_store.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "core/known_enum.h"
#include "core/memory_limit.h"
#include "core/shape.h"
#include "posenc/core/error.h"

namespace posenc::inline v0::detail {
namespace {

constexpr std::size_t kPage = std::size_t{2} << 20;  // of memory given at once: a huge page
constexpr Index kLeastCapacity = Index{1} << 20;     // rows: address space costs nothing

std::size_t round_up(std::size_t n) {
  return (n + kPage - 1) / kPage * kPage;
}

constexpr std::size_t kBeyond = std::numeric_limits<std::size_t>::max();

// kBeyond where it is more than a size counts.
std::size_t bytes_of(Index rows, Index columns, DType dtype) {
  const Index row = std::max<Index>(1, columns) * size_of(dtype);
  std::size_t bytes = 0;
  return __builtin_mul_overflow(rows, row, &bytes) ? kBeyond : bytes;
}

std::string rows_text(Index rows) {
  return "a table of " + std::to_string(rows) + " positions";
}

// As much address space as grows without a copy, or what these rows need alone.
Reservation reserve(Index rows, Index capacity, Index* got, Index columns, DType dtype) {
  const std::size_t bytes = bytes_of(rows, columns, dtype);
  check_memory("rotary table", rows_text(rows), bytes);
  for (const Index n : {capacity, rows}) {
    const std::size_t size = bytes_of(n, columns, dtype);
    if (size == kBeyond) continue;
    Reservation memory(size);
    if (memory.data() == nullptr) continue;
    *got = n;
    return memory;
  }
  refuse_memory("rotary table", rows_text(rows), bytes);
}

void check_positions(Index positions, const RotarySpec& spec) {
  if (positions < 0) refuse_field("rotary table", "positions", "must not be negative", positions);
  if (positions > spec.valid_to())
    refuse_field("rotary table", "positions",
                 "must be at most " + std::to_string(spec.valid_to()) +
                     ", the length up to which the frequencies hold",
                 positions);
}

void check_alike(const RotarySpec& from, const RotarySpec& to) {
  bool fits = from.blocks.size() == to.blocks.size() && from.axes() == to.axes();
  for (std::size_t i = 0; fits && i < from.blocks.size(); ++i) {
    const Spectrum &a = from.blocks[i].spectrum, &b = to.blocks[i].spectrum;
    fits = a.pairs() == b.pairs() && a.heads == b.heads && a.axes == b.axes;
  }
  if (fits) return;
  const auto text = [](const RotarySpec& s) {
    std::string blocks;
    for (const RotaryBlock& b : s.blocks)
      blocks +=
          (blocks.empty() ? "" : ", ") + sizes_text({b.spectrum.heads, b.spectrum.axes, b.pairs()});
    return blocks.empty() ? std::string("no block") : blocks;
  };
  refuse_shape(
      "rotary table",
      "frequencies that replace the table's must have its heads, axes and pairs, " + text(from),
      text(to));
}

}  // namespace

Reservation::Reservation(std::size_t bytes) : size_(round_up(std::max<std::size_t>(bytes, 1))) {
  void* p = ::mmap(nullptr, size_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) {
    size_ = 0;
    return;
  }
  data_ = static_cast<std::byte*>(p);
#ifdef MADV_HUGEPAGE
  ::madvise(p, size_, MADV_HUGEPAGE);  // fewer page faults while rows are first written
#endif
}
Reservation::~Reservation() {
  if (data_ != nullptr) ::munmap(data_, size_);
}
Reservation::Reservation(Reservation&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      committed_(std::exchange(other.committed_, 0)) {}
Reservation& Reservation::operator=(Reservation&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(committed_, other.committed_);
  return *this;
}
void Reservation::commit(std::size_t bytes) {
  bytes = std::min(size_, round_up(bytes));
  if (bytes <= committed_) return;
  if (::mprotect(data_ + committed_, bytes - committed_, PROT_READ | PROT_WRITE) != 0)
    refuse_memory("rotary table", "the table", bytes);
  committed_ = bytes;
}

TableVersion* TableStore::pin() noexcept {
  // A version that was current after its pin went up is not freed before the pin goes down. One
  // that was not is only counted, never read.
  for (;;) {
    TableVersion* v = current_.load();
    v->pins.fetch_add(1);
    if (current_.load() == v) return v;
    unpin(*v);
  }
}

void TableStore::unpin(TableVersion& v) noexcept {
  if (v.pins.fetch_sub(1) == 1 && v.state.load() == TableVersion::kRetired) reclaim(v);
}

void TableStore::reclaim(TableVersion& v) noexcept {
  for (;;) {
    int expected = TableVersion::kRetired;
    if (!v.state.compare_exchange_strong(expected, TableVersion::kFreeing)) return;
    if (v.pins.load() == 0) break;
    // A reader holds it, or only looked: whoever leaves last, or this loop, frees it.
    v.state.store(TableVersion::kRetired);
    if (v.pins.load() != 0) return;
  }
  v.memory = Reservation();
  v.file.reset();
  v.state.store(TableVersion::kFree);
}

// Takes over from a writer that a fork left behind: the version that it was filling is left alone.
class TableStore::Writing {
 public:
  explicit Writing(TableStore& store) : store_(store) {
    if (!store_.writer_.lock()) return;
    for (TableVersion* v = store_.versions_.first.load(); v != nullptr; v = v->next) {
      int building = TableVersion::kBuilding;
      v->state.compare_exchange_strong(building, TableVersion::kLost);
    }
  }
  ~Writing() { store_.writer_.unlock(); }
  Writing(const Writing&) = delete;
  Writing& operator=(const Writing&) = delete;

 private:
  TableStore& store_;
};

// The version is free again unless it was published.
class TableStore::Building {
 public:
  explicit Building(TableVersion& v) : version_(v) { v.state.store(TableVersion::kBuilding); }
  ~Building() {
    int building = TableVersion::kBuilding;
    version_.state.compare_exchange_strong(building, TableVersion::kFree);
  }
  Building(const Building&) = delete;
  Building& operator=(const Building&) = delete;

 private:
  TableVersion& version_;
};

TableVersion& TableStore::unused() {
  TableVersion* found = versions_.first.load();
  while (found != nullptr && found->state.load() != TableVersion::kFree) found = found->next;
  if (found == nullptr) {
    found = new TableVersion;
    found->next = versions_.first.load();
    versions_.first.store(found);
  }
  return *found;
}

TableStore::Versions::~Versions() {
  for (TableVersion* v = first.load(); v != nullptr;) {
    TableVersion* next = v->next;
    const int state = v->state.load();
    if (state != TableVersion::kLost && state != TableVersion::kFreeing) delete v;
    v = next;
  }
}

void TableStore::publish(TableVersion& v) noexcept {
  TableVersion* old = current_.load();
  v.state.store(TableVersion::kLive);
  current_.store(&v);
  if (old == nullptr) return;
  old->state.store(TableVersion::kRetired);
  if (old->pins.load() == 0) reclaim(*old);
}

void TableStore::rebuild(const RotarySpec& spec, Index positions, Index capacity,
                         const Executor& executor) {
  const TableVersion* old = current_.load();
  TableVersion& v = unused();
  const Building building(v);
  describe_version(v, spec, old ? old->dtype : v.dtype, old ? old->layout : v.layout);
  v.lineage = old ? old->lineage : std::vector<std::uint64_t>{};
  const std::uint64_t hash = rows_hash(spec);
  if (std::find(v.lineage.begin(), v.lineage.end(), hash) == v.lineage.end())
    v.lineage.push_back(hash);
  v.memory = reserve(positions, std::max({positions, capacity, kLeastCapacity}), &v.capacity,
                     v.columns, v.dtype);
  v.memory.commit(bytes_of(positions, v.columns, v.dtype));
  v.base = v.memory.data();
  Index have = 0;
  if (old != nullptr && same_rows(old->spec, spec)) {  // the rows are known already
    have = std::min(old->size.load(), positions);
    std::memcpy(v.memory.data(), old->base, bytes_of(have, v.columns, v.dtype));
  }
  build_rows(v, have, positions, v.memory.data() + bytes_of(have, v.columns, v.dtype), executor);
  v.size.store(positions, std::memory_order_release);
  publish(v);
}

TableStore::TableStore(const RotarySpec& spec, Index positions, DType dtype, TableLayout layout,
                       BeyondTable beyond, const Executor& executor)
    : beyond_(beyond) {
  check_positions(positions, spec);
  if (dtype != DType::f32 && dtype != DType::f16 && dtype != DType::bf16)
    refuse_field("rotary table", "dtype", "must be f32, f16 or bf16", dtype_name(dtype));
  check_known("rotary table", "layout", layout);
  check_known("rotary table", "beyond", beyond);
  TableVersion& first = unused();
  first.dtype = dtype, first.layout = layout;
  rebuild(spec, positions, 0, executor);
}

TableStore::TableStore(const RotarySpec& spec, Index positions, DType dtype, TableLayout layout,
                       BeyondTable beyond, MappedFile file, const std::byte* base)
    : beyond_(beyond) {
  check_positions(positions, spec);
  TableVersion& v = unused();
  describe_version(v, spec, dtype, layout);
  v.lineage.push_back(rows_hash(spec));
  v.capacity = positions;
  v.file = std::move(file);
  v.base = base;
  v.size.store(positions);
  publish(v);
}

void TableStore::grow(Index positions, const Executor& executor) {
  const Writing writing(*this);
  TableVersion& v = *current_.load();
  check_positions(positions, v.spec);
  const Index size = v.size.load();
  if (positions <= size) return;
  if (positions > v.capacity || v.memory.data() == nullptr) {
    rebuild(RotarySpec(v.spec), positions, 2 * v.capacity, executor);
    return;
  }
  const std::size_t bytes = bytes_of(positions, v.columns, v.dtype);
  check_memory("rotary table", rows_text(positions), bytes);
  v.memory.commit(bytes);
  build_rows(v, size, positions, v.memory.data() + bytes_of(size, v.columns, v.dtype), executor);
  v.size.store(positions, std::memory_order_release);
}

void TableStore::replace(const RotarySpec& spec, const Executor& executor) {
  const Writing writing(*this);
  const TableVersion& v = *current_.load();
  check_rotary(spec);
  check_alike(v.spec, spec);
  check_positions(v.size.load(), spec);
  rebuild(spec, v.size.load(), v.capacity, executor);
}

Index TableStore::size() const noexcept {
  const Pin p(const_cast<TableStore&>(*this));
  return p->size.load(std::memory_order_acquire);
}

}  // namespace posenc::v0::detail
