// SPDX-License-Identifier: Apache-2.0
#include "attention/fast/pictures.h"

#include <algorithm>
#include <cmath>

#include "attention/fast/starts.h"
#include "core/element.h"
#include "kernels/attention/fast_strips.h"

namespace posenc::inline v0::detail {
namespace {

// Of a table: the row of each key, with `none` where it has none.
void find_rows(const ReadyCall& c, const PairRows& of, const ProductTerm& t, const FastRow& r,
               Run keys, Index none, std::int32_t* to) noexcept {
  of.find(c, t, r, keys, to);
  const auto last = static_cast<std::int32_t>(none);
  for (Index j = 0; j < keys.end - keys.begin; ++j) to[j] = to[j] < 0 ? last : to[j];
}

}  // namespace

PictureWork::PictureWork(bool wanted, Index block_keys, CallArena& arena) {
  if (!wanted) return;
  rows = arena.array<std::int32_t>(block_keys + kMostLanes);
  numbers = arena.array<float>(block_keys + kMostLanes);
  if (!arena.counts()) std::fill(rows.begin(), rows.end(), 0);
}

Pictures::Pictures(const ReadyCall& c, std::span<const std::size_t> terms, bool one,
                   CallArena& arena)
    : call_(&c) {
  std::span<Part> all = arena.objects<Part>(static_cast<Index>(terms.size()));
  std::span<std::size_t> numbers = arena.objects<std::size_t>(static_cast<Index>(terms.size()));
  std::copy(terms.begin(), terms.end(), numbers.begin());
  if (const PictureLines lines(c, numbers, arena); !lines.none()) {
    parts_ = all.first(1);
    parts_[0] = {numbers, lines, nullptr, {}, 0, lines.entries()};
  } else if (!one) {
    std::size_t count = 0;
    for (const std::size_t term : terms) {
      parts_ = all.first(++count);
      if (!add_part(c, term, arena)) {
        parts_ = {};
        return;
      }
      if (parts_.back().size == 0) --count;  // an earlier one has it
    }
    parts_ = all.first(count);
  }
  for (Part& p : parts_) p.first = entries_, entries_ += p.size;
  if (parts_.size() > 1 && entries_ > most_entries(c)) parts_ = {}, entries_ = 0;
}

// To a picture of the earlier parts; else to the last part, which is new.
bool Pictures::add_part(const ReadyCall& c, std::size_t term, CallArena& arena) {
  const std::span<std::size_t> alone = arena.objects<std::size_t>(1);
  alone[0] = term;
  for (Part& p : parts_.first(parts_.size() - 1)) {
    if (p.table != nullptr) continue;
    const std::span<std::size_t> both =
        arena.objects<std::size_t>(static_cast<Index>(p.terms.size()) + 1);
    std::copy(p.terms.begin(), p.terms.end(), both.begin());
    both.back() = term;
    if (const PictureLines lines(c, both, arena); !lines.none()) {
      p.terms = both, p.lines = lines, p.size = lines.entries();
      return true;
    }
  }
  Part& last = parts_.back();
  last.terms = alone;
  last.lines = PictureLines(c, alone, arena);
  last.size = last.lines.entries();
  if (last.size > 0) return true;
  last.table = std::get_if<ProductTerm>(&c.args.terms[term]);
  if (last.table == nullptr || last.table->table.shape[2] > most_entries(c)) return false;
  last.rows = PairRows(c, *last.table, !arena.counts(), arena);
  last.size = last.table->table.shape[2] + 1;
  return true;
}

const Pictures::Part& Pictures::part_of(const Term& term) const noexcept {
  const auto number = static_cast<std::size_t>(&term - call_->args.terms.data());
  return *std::ranges::find_if(
      parts_, [&](const Part& p) { return std::ranges::find(p.terms, number) != p.terms.end(); });
}

void Pictures::write(const ReadyCall& c, const FastReadKernels& reads, const FastRow& r, Run keys,
                     const float* head, std::int32_t* rows, float* to) const noexcept {
  const Index count = keys.end - keys.begin;
  std::fill_n(to, count, 0.0f);
  for (const Part& p : parts_) {
    const float* numbers = head + p.first;
    if (p.table != nullptr) {
      find_rows(c, p.rows, *p.table, r, keys, p.size - 1, rows);
      std::fill_n(rows + count, kMostLanes, static_cast<std::int32_t>(p.size - 1));
      reads.add_indexed(to, numbers, rows, count);
    } else if (p.lines.has_runs()) {
      p.lines.each_run(r, p.lines.entry_of(c, r.b, r.i), p.lines.runs(r.place.row, keys), keys,
                       [&](Index first, Index end, Index at) {
                         for (Index j = first; j < end; ++j) to[j - keys.begin] += numbers[at + j];
                       });
    } else {
      reads.add_indexed(to, numbers + p.lines.entry_of(c, r.b, r.i),
                        p.lines.codes(r.b, r.i, r.place.row) + keys.begin, count);
    }
  }
}

void Pictures::add_slopes(const ReadyCall& c, const FastRow& r, Run keys, const float* s,
                          std::int32_t* rows, double* head) const noexcept {
  const Index count = keys.end - keys.begin;
  for (const Part& p : parts_) {
    double* numbers = head + p.first;
    if (p.table == nullptr && p.lines.has_runs()) {
      p.lines.each_run(r, p.lines.entry_of(c, r.b, r.i), p.lines.runs(r.place.row, keys), keys,
                       [&](Index first, Index end, Index at) {
                         for (Index j = first; j < end; ++j)
                           numbers[at + j] += static_cast<double>(s[j - keys.begin]);
                       });
      continue;
    }
    const std::int32_t* at = rows;
    if (p.table != nullptr)
      find_rows(c, p.rows, *p.table, r, keys, p.size - 1, rows);
    else
      numbers += p.lines.entry_of(c, r.b, r.i),
          at = p.lines.codes(r.b, r.i, r.place.row) + keys.begin;
    for (Index j = 0; j < count; ++j) numbers[at[j]] += static_cast<double>(s[j]);
  }
}

void Pictures::add_numbers(const Part& p, const Term& term, const std::int32_t* rows, Index slab,
                           double factor, double* to) const noexcept {
  if (p.table == nullptr) return p.lines.add(term, rows, slab, factor, to);
  const ConstTensorView& table = p.table->table;
  const Index groups = table.shape[1];
  for (Index row = 0; row < p.size - 1; ++row)
    to[row] += factor * read_number(table, slab / groups, slab % groups, row, 0);
}

void Pictures::pull(const Term& term, double factor, const double* head,
                    double* rows) const noexcept {
  const Part& p = part_of(term);
  if (p.table == nullptr) return p.lines.pull(term, factor, head + p.first, rows);
  for (Index row = 0; row < p.size - 1; ++row) rows[row] += factor * head[p.first + row];
}

double Pictures::largest(const double* head) const noexcept {
  double sum = 0;
  for (const Part& p : parts_) {
    double most = 0;
    for (Index n = 0; n < p.size; ++n) most = std::max(most, std::fabs(head[p.first + n]));
    sum += most;
  }
  return sum;
}

}  // namespace posenc::v0::detail
