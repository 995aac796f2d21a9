// SPDX-License-Identifier: Apache-2.0
// Start values of terms that read rows of a table (row_terms.h), and the memory of one thread.
//
// Where all pairs of a strip of rows and a block of keys read one row, a query's number is added to what the strip is
// relative to, and a key's is a row of start values. Elsewhere the rows of the strip are multiplied with the steps that
// the block spans. From block to block these move along the line, so each step is multiplied once for each query.
#pragma once
#include "attention/fast/row_blocks.h"
#include "attention/fast/row_terms.h"

namespace posenc::inline v0::detail {

struct FastCall;
struct FastRowWork;
struct StripStarts;

struct RowTermWork {
  RowTermWork(const RowTerm&, const FastKernels&, Index rows, Index block_keys, CallArena&);

  struct Panels {
    Index first = 0, count = 0;
  };
  // Of queries.
  std::span<float> x;  // [rows][x_width]: times the term's scale and log2(e); 0 behind the channels
  Index x_width = 0;
  std::span<float> kept;      // [rows][kept_width]: the last panels of the block of keys before
  std::span<Panels> held;     // by group: what is kept
  std::span<float> products;  // by line: [rows of a strip][width]; else [rows][width], all steps
  std::span<float> numbers;   // [rows][RowClasses::width]: of classes of keys
  Index width = 0, kept_width = 0;
  // Of keys.
  const float* packed = nullptr;      // vectors of the block of keys, in panels
  Index packed_channels = 0;          // of a panel; those of the term are the first
  std::span<float> own_packed;        // memory for those that the term comes with
  std::span<const void*> own_tokens;  // the same
  std::span<float> columns;           // [steps][keys of a block]
  std::span<std::uint8_t> done;       // by steps of a strip: whether they are in `columns`
  Index head = -1;                    // whose columns these are
  bool bounded = true;                // whether float holds the vectors of the block
};

// The vector of one query, times the term's scale and log2(e). False: float does not hold it.
bool take_row_vector(const FastCall&, const RowTerm&, const FastRow&, float* x) noexcept;
// The row of the table that a query reads of each key, `count` numbers: the last step where there is none, or no key.
const std::int32_t* pick_rows(const FastCall&, const RowTerm&, const FastRow&, Run keys,
                              Index count, std::int32_t* to) noexcept;
// Vectors of the rows of a block, which find_rows found. Rows that float cannot work with are left.
void take_row_terms(const FastCall&, FastRowWork&) noexcept;
// A block of keys, packed: `tokens` is null where no row sees a key. Of row `row` of the keys.
struct PackedKeys {
  const float* panels;
  std::span<const void* const> tokens;
  Index row;
  Run keys;
};
void take_row_keys(const FastCall&, FastRowWork&, const PackedKeys&) noexcept;

// Start values that a strip has already: none, those that others read too, its own.
enum class Given : std::uint8_t { nothing, shared, own };
// Adds the terms to the start values of a strip.
Given add_row_terms(const FastCall&, FastRowWork&, const RowGroup&, Run keys, Given,
                    StripStarts&) noexcept;

}  // namespace posenc::v0::detail
