// SPDX-License-Identifier: Apache-2.0
// Memory of a RotaryTable: address space that is reserved once and filled as the table grows, and
// versions of it that readers pin without a lock.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "posenc/core/executor.h"
#include "posenc/io/gguf.h"
#include "posenc/rotary/table.h"
#include "positions/length.h"
#include "rotary/writer_lock.h"

namespace posenc::inline v0::detail {

// Address space without memory; commit() gives a prefix of it memory. Nothing ever moves.
class Reservation {
 public:
  Reservation() = default;
  explicit Reservation(std::size_t bytes);  // no data where the system has no addresses
  ~Reservation();
  Reservation(Reservation&& other) noexcept;
  Reservation& operator=(Reservation&& other) noexcept;
  void commit(std::size_t bytes);  // throws OutOfMemory when the system refuses
  std::byte* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return size_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0, committed_ = 0;
};

// What rows are made of: frequencies, gain, heads, axes, precision; not pairing nor place.
std::uint64_t rows_hash(const RotarySpec&);
bool same_rows(const RotarySpec&, const RotarySpec&);

// Rows of one spec. All but the atomics is written before publication and not after.
struct TableVersion {
  RotarySpec spec;
  LengthRange lengths;  // for which its frequencies hold
  DType dtype = DType::f32;
  TableLayout layout = TableLayout::half;
  Index columns = 0, capacity = 0;
  const std::byte* base = nullptr;
  Reservation memory;                           // or
  std::optional<MappedFile> file;               // of a mapped table, which cannot be appended to
  std::vector<std::vector<std::int32_t>> axes;  // of each pair, a block each
  std::vector<const std::int32_t*> pair_axis;   // empty: one axis
  std::vector<std::uint64_t> lineage;           // hashes of the specs before and this

  // kBuilding: a writer fills it. kLost: its writer is a thread that a fork left behind; not touched again.
  enum : int { kFree, kBuilding, kLive, kRetired, kFreeing, kLost };
  std::atomic<Index> size{0};
  std::atomic<Index> pins{0};
  std::atomic<int> state{kFree};
  TableVersion* next = nullptr;  // of the store's list
};

// Readers pin the current version: two atomic operations, never a lock. Writers build aside,
// publish by one store and free the old version when its last reader leaves.
class TableStore {
 public:
  class Pin {
   public:
    explicit Pin(TableStore& store) noexcept : version_(store.pin()) {}
    ~Pin() {
      if (version_) unpin(*version_);
    }
    Pin(Pin&& other) noexcept : version_(std::exchange(other.version_, nullptr)) {}
    Pin(const Pin&) = delete;
    Pin& operator=(const Pin&) = delete;
    Pin& operator=(Pin&&) = delete;
    const TableVersion& operator*() const noexcept { return *version_; }
    const TableVersion* operator->() const noexcept { return version_; }

   private:
    TableVersion* version_;
  };

  TableStore(const RotarySpec&, Index positions, DType, TableLayout, BeyondTable, const Executor&);
  TableStore(const RotarySpec&, Index positions, DType, TableLayout, BeyondTable, MappedFile,
             const std::byte* base);
  TableStore(const TableStore&) = delete;
  TableStore& operator=(const TableStore&) = delete;

  void grow(Index positions, const Executor&);
  void replace(const RotarySpec&, const Executor&);
  Index size() const noexcept;
  BeyondTable beyond() const noexcept { return beyond_; }

 private:
  friend class Pin;
  TableVersion* pin() noexcept;
  static void unpin(TableVersion&) noexcept;
  static void reclaim(TableVersion&) noexcept;
  class Writing;           // holds writer_
  class Building;          // of a version
  TableVersion& unused();  // under writer_
  void publish(TableVersion&) noexcept;
  void rebuild(const RotarySpec&, Index positions, Index capacity, const Executor&);

  BeyondTable beyond_ = BeyondTable::refuse;
  WriterLock writer_;  // never taken by a reader
  // A list that one store makes longer: whole at every moment, in the child of a fork too.
  struct Versions {
    Versions() = default;
    ~Versions();
    Versions(const Versions&) = delete;
    Versions& operator=(const Versions&) = delete;
    std::atomic<TableVersion*> first{nullptr};
  } versions_;
  std::atomic<TableVersion*> current_{nullptr};
};

// Rows [begin, end) of the version's spec, written from `to` on.
void build_rows(const TableVersion&, Index begin, Index end, std::byte* to, const Executor&);
// Sets spec, dtype, layout, columns and axes. Throws [rotary table] on what no table can hold.
void describe_version(TableVersion&, const RotarySpec&, DType, TableLayout);

}  // namespace posenc::v0::detail
