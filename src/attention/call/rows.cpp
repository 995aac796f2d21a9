// SPDX-License-Identifier: Apache-2.0
// What all kinds of terms have in common; which row of a table a pair gets, and whether all of them lie
// in it.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "attention/call/field_name.h"
#include "core/extent.h"
#include "posenc/attention/term.h"
#include "posenc/core/error.h"

namespace posenc::inline v0 {
namespace {

// The largest row; -1 where the term is disabled for every pair.
Index largest_row(const std::int32_t* row, Index count) {
  return std::max<Index>(-1, *std::max_element(row, row + count));
}

void check_edges(const IndexLine& line) {
  for (Index i = 0; i + 1 < line.count; ++i)
    if (std::isnan(line.edges[i]) || (i > 0 && line.edges[i] < line.edges[i - 1]))
      detail::refuse_number("attention", "edges",
                            "edges of a line must be numbers that do not decrease", line.edges[i]);
}

}  // namespace

std::int32_t row_of(const IndexLine& line, double delta) noexcept {
  if (line.edges != nullptr)
    return line.row[std::upper_bound(line.edges, line.edges + line.count - 1, delta) - line.edges];
  const double last = static_cast<double>(line.count - 1);
  const double slot = std::floor(delta) - static_cast<double>(line.lo);
  return line.row[slot >= last ? line.count - 1 : slot > 0 ? static_cast<Index>(slot) : 0];
}

std::string_view term_name(const Term& t) noexcept {
  return std::visit([](const auto& kind) { return kind.name; }, t);
}

TermArrays term_arrays(const Term& t) noexcept {
  TermArrays all;
  std::visit(
      [&](const auto& kind) {
        if constexpr (requires { kind.table; }) all.table = kind.table;
        if constexpr (requires { kind.query; }) all.query = kind.query, all.key = kind.key;
        if constexpr (requires { kind.mlp; }) all.mlp = kind.mlp;
      },
      t);
  return all;
}

const PickedRows* picked_rows(const Term& t) noexcept {
  if (const auto* product = std::get_if<ProductTerm>(&t)) return product;
  return std::get_if<ValueRowsTerm>(&t);
}
PickedRows* picked_rows(Term& t) noexcept {
  return const_cast<PickedRows*>(picked_rows(std::as_const(t)));
}

void check_rows(const Term& term) {
  const PickedRows* t = picked_rows(term);
  if (t == nullptr) return;
  Index sum = 0;
  bool any = false, all_disabled = false;
  const auto count_in = [&](Index largest) {
    any = true;
    all_disabled |= largest < 0;
    sum += std::max<Index>(0, largest);
  };
  for (const IndexLine& line : t->lines) {
    if (line.row == nullptr) continue;
    if (line.count < 1)
      detail::refuse_number("attention", "line", "a line must have at least one row", line.count);
    if (line.count > detail::kMostSize)
      detail::refuse_number("attention", "line", "a line must have at most 2^40 rows", line.count);
    if (line.edges != nullptr) check_edges(line);
    count_in(largest_row(line.row, line.count));
  }
  if (t->pair.row != nullptr) {
    const IndexPair& p = t->pair;
    if (p.query_classes < 1 || p.key_classes < 1)
      detail::refuse_number("attention", "pair", "a pair must have classes of queries and of keys",
                            std::min(p.query_classes, p.key_classes));
    if (detail::saturated_product({p.query_classes, p.key_classes}) > detail::kMostSize)
      detail::refuse_number("attention", "pair",
                            "a pair must have at most 2^40 rows, classes of queries",
                            p.query_classes);
    count_in(largest_row(p.row, p.query_classes * p.key_classes));
  }
  if (!any || all_disabled || t->table.rank != 4) return;
  if (sum >= t->table.shape[2])
    refuse_field("attention", "term " + std::string(term_name(term)) + " rows",
                 "must lie inside its table, the sum of the largest of its lines and its pair",
                 sum);
}

}  // namespace posenc::v0
