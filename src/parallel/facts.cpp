// SPDX-License-Identifier: Apache-2.0
#include "parallel/facts.h"

#include <algorithm>

#include "core/element.h"
#include "posenc/core/error.h"
#include "posenc/rotary/spec.h"

namespace posenc::inline v0::detail {
namespace {

// Every number of a real or integer array, by rows.
template <class F>
void each_number(const ConstTensorView& v, const F& fn) {
  std::array<Index, ConstTensorView::kMaxRank> at{};
  for (Index n = v.count(); n > 0; --n) {
    Index place = 0;
    for (std::size_t a = 0; a < static_cast<std::size_t>(v.rank); ++a) place += at[a] * v.stride[a];
    fn(is_float(v.dtype) ? float_element(v.data, v.dtype, place)
                         : static_cast<double>(integer_element(v.data, v.dtype, place)));
    for (auto a = static_cast<std::size_t>(v.rank); a-- > 0;) {
      if (++at[a] < v.shape[a]) break;
      at[a] = 0;
    }
  }
}

void add_factor(Facts& f, const Factor& x) {
  f.add(Facts::terms, Index{x.content});
  f.add(Facts::terms, x.given);
  const ConstHeads& h = x.given;
  if (h.data == nullptr || h.tokens != 1) return;  // of each token: a rank's own
  const Index shape[] = {h.batch, h.tokens, h.heads, h.dim};
  const Index stride[] = {h.batch_stride, h.token_stride, h.head_stride, h.dim_stride};
  f.add(Facts::shared, tensor(h.data, h.dtype, shape, stride), true);
}

void add_network(Facts& f, const Mlp& m) {
  for (const ConstTensorView* v : {&m.in, &m.in_bias, &m.out, &m.out_bias})
    f.add(Facts::shared, *v, true);
  f.add(Facts::terms, m.slope);
}

void add_rows(Facts& f, const PickedRows& r) {
  for (const IndexLine& line : r.lines) {
    f.add(Facts::terms, line.row == nullptr ? Index{-1} : line.count);
    f.add(Facts::terms, line.lo);
    f.add(Facts::terms, Index{line.axis});
    for (Index n = 0; line.row != nullptr && n < line.count; ++n)
      f.add(Facts::shared, Index{line.row[n]});
    for (Index n = 0; line.edges != nullptr && n + 1 < line.count; ++n)
      f.add(Facts::shared, line.edges[n]);
  }
  f.add(Facts::terms, r.pair.query_classes);
  f.add(Facts::terms, r.pair.key_classes);
  for (Index n = 0; r.pair.row != nullptr && n < r.pair.query_classes * r.pair.key_classes; ++n)
    f.add(Facts::shared, Index{r.pair.row[n]});
  f.add(Facts::terms, r.pair.query_class, false);
  f.add(Facts::terms, r.pair.key_class, false);
}

// Fields of a term beside its arrays.
template <class T>
void add_fields(Facts& f, const T& t) {
  f.add(Facts::terms, t.scale);
  if constexpr (requires { t.axis; }) f.add(Facts::terms, Index{t.axis});
  if constexpr (requires { t.side; }) f.add(Facts::terms, enum_text(t.side));
  if constexpr (std::is_same_v<T, GatesTerm>) {
    f.add(Facts::terms, enum_text(t.gate));
    f.add(Facts::terms, t.gate_scale);
    f.add(Facts::terms, Index{t.gate_own});
    f.add(Facts::terms, t.spread);
  }
  if constexpr (std::is_same_v<T, DistanceMlpTerm>) {
    f.add(Facts::terms, t.epsilon);
    f.add(Facts::terms, Index{t.keep_sign});
  }
}

void add_term(Facts& f, const Term& t) {
  f.add(Facts::terms, term_name(t));
  const TermArrays arrays = term_arrays(t);
  f.add(Facts::shared, arrays.table, true);
  add_factor(f, arrays.query);
  add_factor(f, arrays.key);
  add_network(f, arrays.mlp);
  if (const PickedRows* const r = picked_rows(t)) add_rows(f, *r);
  std::visit([&](const auto& term) { add_fields(f, term); }, t);
}

void add_stages(Facts& f, std::span<const Stage> stages) {
  for (const Stage& s : stages) {
    f.add(Facts::terms, enum_text(s.kind));
    f.add(Facts::terms, s.epsilon);
    f.add(Facts::terms, Index{s.value});
    f.add(Facts::shared, s.q, true);
    f.add(Facts::shared, s.k, true);
    if (s.rotary != nullptr) f.add(Facts::shared, s.rotary->hash());
  }
}

}  // namespace

void Facts::add(Name n, const ConstTensorView& v, bool values) {
  add(n, Index{v.empty() ? -1 : v.rank});
  if (v.empty()) return;
  add(n, static_cast<Index>(v.dtype));
  for (std::size_t a = 0; a < static_cast<std::size_t>(v.rank); ++a) add(n, v.shape[a]);
  if (values) each_number(v, [&](double x) { add(n, x); });
}

void Facts::add(Name n, const ConstHeads& h) {
  add(n, Index{h.data != nullptr});
  add(n, static_cast<Index>(h.dtype));
  for (const Index size : {h.batch, h.tokens, h.heads, h.dim}) add(n, size);
}

void Facts::add(Name n, const Positions& p) {
  add(n, Index{p.data != nullptr});
  if (p.data == nullptr) return;
  add(n, static_cast<Index>(p.type));
  for (const Index size : {Index{p.axes}, p.batch, p.count}) add(n, size);
}

void add_call(Facts& f, const AttentionArgs& a) {
  for (const ConstHeads* h : {&a.q, &a.k, &a.v}) f.add(Facts::sizes, *h);
  for (const Positions* p : {&a.query_positions, &a.key_positions}) f.add(Facts::sizes, *p);
  const Mask& m = a.mask;
  for (const Index n : {Index{m.causal}, m.window_left, m.window_right, m.sink_tokens, m.chunk})
    f.add(Facts::mask, n);
  for (const ConstTensorView* v : {&m.head_side, &m.prefix, &m.chunk_origin})
    f.add(Facts::mask, *v, true);
  for (const ConstTensorView* v :
       {&m.query_order, &m.query_document, &m.query_cu_seqlens, &m.key_order, &m.key_document,
        &m.key_visible, &m.key_length, &m.key_cu_seqlens})
    f.add(Facts::mask, *v, false);
  f.add(Facts::shared, a.scale.value_or(0));
  f.add(Facts::shared, a.softcap);
  f.add(Facts::shared, Index{a.softcap_after_terms});
  for (const ConstTensorView* v : {&a.head_scale, &a.sink, &a.mix_before})
    f.add(Facts::shared, *v, true);
  f.add(Facts::sizes, a.query_factor, false);
  f.add(Facts::pass, Index{a.exact});
  f.add(Facts::terms, enum_text(a.normalisation));
  for (const Term& t : a.terms) add_term(f, t);
  add_stages(f, a.prepare);
  for (const ScoreRegion& r : a.regions) {
    f.add(Facts::terms, r.qk.q), f.add(Facts::terms, r.qk.k);
    for (const Index n : {r.chunk, r.low, r.high, Index{r.axis}}) f.add(Facts::terms, n);
    for (const Positions* p : {&r.query_positions, &r.key_positions}) f.add(Facts::sizes, *p);
    f.add(Facts::terms, Index{r.rotary != nullptr});
    if (r.rotary != nullptr) f.add(Facts::shared, r.rotary->hash());
  }
}

void add_wanted(Facts& f, const AttentionGradients& g) {
  const auto wants = [&](bool x) { f.add(Facts::gradients, Index{x}); };
  for (const Heads* h : {&g.q, &g.k, &g.v}) wants(h->data != nullptr);
  for (const TensorView* v : {&g.head_scale, &g.query_factor, &g.sink, &g.mix_before})
    wants(!v->empty());
  for (const TermGradient& t : g.terms) {
    wants(!t.table.empty()), wants(t.query.data != nullptr), wants(t.key.data != nullptr);
    for (const TensorView* v : {&t.mlp.in, &t.mlp.in_bias, &t.mlp.out, &t.mlp.out_bias})
      wants(!v->empty());
  }
  for (const StageGradient& s : g.prepare) wants(!s.q.empty()), wants(!s.k.empty());
  for (const QK& r : g.regions) wants(r.q.data != nullptr), wants(r.k.data != nullptr);
}

namespace {

// What a rank says before a call.
struct Record {
  std::array<std::uint64_t, Facts::count> hash;
  Index length = 0;
  enum Kind : std::uint32_t { good, refused, failed } kind = good;
  std::array<char, 1024> text{};
};
static_assert(std::is_trivially_copyable_v<Record>);

Record record_of(const Facts& f, const std::exception_ptr& problem) {
  Record r{f.hash, f.length};
  if (problem == nullptr) return r;
  const auto put = [&](Record::Kind kind, std::string_view text) {
    r.kind = kind;
    std::copy_n(text.begin(), std::min(text.size(), r.text.size() - 1), r.text.begin());
  };
  try {
    std::rethrow_exception(problem);
  } catch (const std::invalid_argument& e) {
    put(Record::refused, e.what());
  } catch (const std::exception& e) {
    put(Record::failed, e.what());
  }
  return r;
}

std::string of_rank(std::size_t rank) {
  return "rank " + std::to_string(rank);
}

void refuse_difference(std::string_view who, std::span<const Record> all) {
  for (std::size_t n = 0; n < Facts::count; ++n)
    for (std::size_t r = 1; r < all.size(); ++r)
      if (all[r].hash[n] != all[0].hash[n])
        refuse(who, "all ranks must make the same call; rank 0 and " + of_rank(r) + " differ in " +
                        std::string(Facts::names[n]));
}

}  // namespace

Index agree(const Group& g, const Facts& facts, const std::exception_ptr& problem) {
  const Record own = record_of(facts, problem);
  const std::vector<std::byte> bytes = gather(g, std::as_bytes(std::span(&own, 1)));
  std::vector<Record> all(static_cast<std::size_t>(g.size()));
  std::memcpy(all.data(), bytes.data(), bytes.size());
  const auto first =
      std::find_if(all.begin(), all.end(), [](const Record& r) { return r.kind != Record::good; });
  if (first == all.end()) {
    refuse_difference(g.who(), all);
    Index longest = 0;
    for (const Record& r : all) longest = std::max(longest, r.length);
    return longest;
  }
  if (own.kind == Record::failed) std::rethrow_exception(problem);  // of memory, of the executor
  const bool everywhere = std::all_of(all.begin(), all.end(), [&](const Record& r) {
    return r.kind == first->kind && r.text == first->text;
  });
  const std::string text(first->text.data());
  const std::string whole = everywhere
                                ? text
                                : "[" + std::string(g.who()) + "] " +
                                      of_rank(static_cast<std::size_t>(first - all.begin())) +
                                      " cannot make the call: " + text;
  if (first->kind == Record::refused) throw std::invalid_argument(whole);
  throw std::runtime_error(whole);
}

}  // namespace posenc::v0::detail
