// SPDX-License-Identifier: Apache-2.0
#include "attention/fast/gates.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "attention/fast/work.h"
#include "posenc/attention/explain_plan.h"

namespace posenc::inline v0::detail {
namespace {

// Levels that a row keeps, and channels of a product, at most.
constexpr Index kMostLevels = 1024, kMostGateChannels = 1024;

const GatesTerm* gates_of(const AttentionArgs& a) noexcept {
  for (const Term& t : a.terms)
    if (Gates::has(t)) return &std::get<GatesTerm>(t);
  return nullptr;
}

// Whether a query has the order of two keys or more, padding aside.
bool share_own_order(const ReadyCall& c) noexcept {
  for (Index n = 0; !c.key_orders.empty() && n < c.B * c.Tq; ++n) {
    const QueryPlace p = c.place(n / c.Tq, n % c.Tq);
    const Index own = c.own_key(p);
    for (Index j = own + 1; own >= 0 && j < p.end; ++j) {
      if (c.is_padding(p, j)) continue;
      if (c.key_order(p, j) == p.order) return true;
      break;
    }
  }
  return false;
}

// A count is at most the number of keys.
Index last_level(const ReadyCall& c, const GatesTerm& t) noexcept {
  return t.table.empty() ? -1 : std::min(t.table.shape[2] - 1, c.Tk);
}

}  // namespace

bool Gates::has(const Term& t) noexcept {
  return term_class(t) == TermClass::gates;
}

std::string_view Gates::why_not(const ReadyCall& c) noexcept {
  const AttentionArgs& a = c.args;
  const GatesTerm* t = gates_of(a);
  if (t == nullptr) return {};
  if (t->spread != 0) return "a term reads all rows of the table of its gates, with a spread";
  if (last_level(c, *t) > kMostLevels) return "a term has gates and a table of more than 1024 rows";
  if (!t->key.content && t->key.given.dim > kMostGateChannels)
    return "a term has gates of more than 1024 channels";
  if (a.softcap != 0) return "the call has gates and a soft cap";
  if (!c.ascends) return "the call has gates and an order of keys that does not ascend";
  if (!t->gate_own && share_own_order(c))
    return "several keys have the order of a query, whose own gates do not count";
  if (std::count_if(a.terms.begin(), a.terms.end(), has) > 1) return "several terms have gates";
  if (std::any_of(a.terms.begin(), a.terms.end(),
                  [](const Term& x) { return RowTerms::has(x) || WideProducts::takes(x); }))
    return "the call has gates, and terms with vectors of query or key";
  return {};
}

Gates::Gates(const ReadyCall& c, const FastKernels& k, CallArena& arena, const Executor& executor)
    : call_(c), term_(gates_of(c.args)) {
  if (none()) return;
  const GatesTerm& t = *term_;
  const double scale = *c.args.scale;
  last_ = last_level(c, t);
  if (has_levels())
    level_stride_ =
        std::max(block_count(last_ + 1, 2 * k.lanes) * 2 * k.lanes, last_ + 2 * k.lanes + 2);
  if (has_levels()) pack_table(k, arena);
  const bool shares = t.query.content && t.key.content && c.args.head_scale.empty() && scale != 0;
  if (shares) {
    ratio_ = static_cast<float>(t.gate_scale / scale);
    return;
  }
  channels_ = t.key.content ? c.D : t.key.given.dim;
  if (!t.key.content) keys_ = readable_vectors(k, t.key.given, arena, executor);
}

double Gates::rise() const noexcept {
  return term_->gate == Gate::sigmoid ? term_->scale * kLog2E : term_->scale;
}

bool Gates::are_bounded_of(Index b, Index h) const noexcept {
  if (!has_levels()) return are_bounded();
  const Index slab = slab_of(term_->table, b, h, call_.H);
  return std::isfinite(ratio_) && bounded_[static_cast<std::size_t>(slab)] != 0;
}

bool Gates::are_bounded() const noexcept {
  return std::isfinite(ratio_) &&
         (none() || has_levels() || std::isfinite(static_cast<float>(rise()))) &&
         std::all_of(bounded_.begin(), bounded_.end(), [](std::uint8_t x) { return x != 0; });
}

bool Gates::is_key_bounded(const FastKernels& k, Index row, Index j, float* memory) const noexcept {
  for (Index h = 0; has_keys() && h < keys_.heads; ++h)
    if (!take_vector(k, keys_, keys_.batch == 1 ? 0 : row, keys_.tokens == 1 ? 0 : j, h, 1, memory,
                     keys_.dim))
      return false;
  return true;
}

void Gates::pack_table(const FastKernels& k, CallArena& arena) {
  const ConstTensorView& table = term_->table;
  const Index slabs = table.shape[0] * table.shape[1], panel = 2 * k.lanes;
  const Index rows = block_count(last_ + 1, panel) * panel;
  slab_size_ = rows * call_.D;
  const std::span<float> to = arena.array<float>(slabs * slab_size_);
  const std::span<std::uint8_t> bounded = arena.array<std::uint8_t>(slabs);
  table_ = to, bounded_ = bounded;
  if (arena.counts()) return;
  for (Index slab = 0; slab < slabs; ++slab) {
    bool all = true;
    for (Index row = 0; row < rows; ++row) {
      float* x = to.data() + slab * slab_size_ + row / panel * panel * call_.D + row % panel;
      all = take_table_row(table, slab, row <= last_ ? row : -1, 1, x, panel) && all;
    }
    bounded[static_cast<std::size_t>(slab)] = all ? 1 : 0;
  }
}

GateWork::GateWork(const FastCall& c, Index rows, Index block_keys, CallArena& arena) {
  const Gates& g = c.gates;
  if (g.none()) return;
  levels = arena.array<float>(rows * g.level_stride());
  count = arena.array<double>(rows);
  vectors = arena.array<float>(c.kernels.rows * c.D);
  if (!g.has_products()) return;
  q = arena.array<float>(rows * g.channels());
  products = arena.array<float>(c.kernels.rows * block_keys);
  if (g.has_keys()) keys = arena.array<float>(block_keys * g.channels());
}

bool take_level_query(const FastCall& c, const FastRow& r, float* to) noexcept {
  if (!c.gates.has_levels()) {
    std::fill_n(to, c.D, 0.0f);
    return true;
  }
  const auto factor = static_cast<float>(c.gates.term().scale * c.factor(r.b, r.i) * kLog2E);
  return std::isfinite(factor) && take_vector(c.kernels, c.q, r.b, r.i, r.h, factor, to, c.D);
}

bool take_gate_query(const FastCall& c, const FastRow& r, float* to) noexcept {
  const GatesTerm& t = c.gates.term();
  const double scale = t.gate_scale * kLog2E;
  if (!t.query.content)
    return take_given(c.kernels, t.query.given, c.H, r.b, r.i, r.h, static_cast<float>(scale), to);
  const auto factor = static_cast<float>(scale * c.factor(r.b, r.i));
  return std::isfinite(factor) && take_vector(c.kernels, c.q, r.b, r.i, r.h, factor, to, c.D);
}

void fill_levels(const FastCall& c, const RowGroup& g, const float* vectors,
                 float* levels) noexcept {
  const Gates& gates = c.gates;
  if (!gates.has_levels()) return;
  const Index slab = slab_of(gates.term().table, g.row->b, g.row->h, c.H);
  const Index stride = gates.level_stride();
  c.row_reads.products[g.kind](levels, stride, vectors, c.D, gates.table(slab), c.panel * c.D,
                               block_count(gates.last() + 1, c.panel), c.D, nullptr);
  for (Index n = 0; n < g.rows; ++n, levels += stride)
    std::fill(levels + gates.last() + 1, levels + stride, levels[gates.last()]);
}

bool find_own_keys(const FastCall& c, const RowGroup& g, Run keys, Index* own) noexcept {
  if (c.gates.term().gate_own) return false;
  for (Index n = 0; n < g.rows; ++n) {
    const Index key = c.own_key(g.row[n].place);
    own[n] = key < 0 ? -1 : key - keys.begin;
  }
  return true;
}

namespace {

void take_group(const FastCall& c, FastWork& w, const RowGroup& g) noexcept {
  const Gates& gates = c.gates;
  for (Index n = 0; n < g.rows; ++n) {
    float* x = w.gates.vectors.data() + n * c.D;
    bool bounded = gates.are_bounded_of(g.row->b, g.row->h);
    if (!take_level_query(c, g.row[n], x)) {
      bounded = false;
      std::fill_n(x, c.D, 0.0f);
    }
    float* q = w.gates.q.data() + (g.first + n) * gates.channels();
    if (gates.has_products() && !take_gate_query(c, g.row[n], q)) {
      bounded = false;
      std::fill_n(q, gates.channels(), 0.0f);
    }
    if (!bounded) w.left[static_cast<std::size_t>(g.first + n)] = 1;
  }
  fill_levels(c, g, w.gates.vectors.data(), w.gates.levels.data() + g.first * gates.level_stride());
}

}  // namespace

void take_gates(const FastCall& c, FastWork& w) noexcept {
  if (c.gates.none()) return;
  for (const RowGroup& g : w.groups) take_group(c, w, g);
}

void clear_gates(const FastCall& c, FastWork& w, const RowGroup& g) noexcept {
  if (!c.gates.none()) std::fill_n(w.gates.count.data() + g.first, g.rows, 0.0);
}

bool counts_gates(const FastCall& c, const FastWork& w, const RowGroup& g) noexcept {
  if (!c.gates.has_levels()) return true;
  const double* count = w.gates.count.data() + g.first;
  const auto last = static_cast<double>(c.gates.last());
  return std::any_of(count, count + g.rows, [&](double x) { return x < last; });
}

bool pack_gate_keys(const FastCall& c, FastWork& w, const FastRowBlock& block, Run keys,
                    Run seen) noexcept {
  if (c.gates.none() || !c.gates.has_keys() ||
      std::none_of(w.groups.begin(), w.groups.end(),
                   [&](const RowGroup& g) { return counts_gates(c, w, g); }))
    return true;
  const ConstHeads& y = c.gates.keys();
  // Of a key that no row sees nothing is read.
  c.fill_tokens(c.k, block.row, c.group(block.head), keys, seen, w.copies.data(), w.tokens.data());
  for (Index n = 0; n < keys.end - keys.begin; ++n)
    if (const void*& from = w.tokens[static_cast<std::size_t>(n)]; from != nullptr)
      from = given_vector(y, c.H, block.row, keys.begin + n, block.head);
  return c.kernels.pack_keys[fast_type(y.dtype)](w.gates.keys.data(), w.tokens.data(),
                                                 keys.end - keys.begin, y.dim, y.dim);
}

void describe_gates(const Gates& gates, FastGates& to) noexcept {
  to.ratio = gates.ratio(), to.last = gates.last(), to.level_stride = gates.level_stride();
  to.logarithm = gates.term().gate == Gate::log_sigmoid;
  if (!gates.has_levels()) to.rise = static_cast<float>(gates.rise());
}

void add_gates_behind(const FastCall& c, const FastWork& w, const RowGroup& g,
                      StripStarts& s) noexcept {
  if (!c.gates.has_levels()) {
    for (Index n = 0; n < g.rows; ++n)
      s.base[n] += c.gates.rise() * w.gates.count[static_cast<std::size_t>(g.first + n)];
    return;
  }
  const float* level = w.gates.levels.data() + g.first * c.gates.level_stride() + c.gates.last();
  for (Index n = 0; n < g.rows; ++n)
    s.base[n] += static_cast<double>(level[n * c.gates.level_stride()]);
}

bool run_gated_strip(const FastCall& c, FastWork& w, const RowGroup& g, Run keys,
                     const FastBlock& block, const FastStrip& strip, bool careful) noexcept {
  const Gates& gates = c.gates;
  std::array<double, kMostStripRows> next;
  std::array<Index, kMostStripRows> own;
  FastGates to;
  describe_gates(gates, to);
  if (gates.has_levels()) to.levels = w.gates.levels.data() + g.first * gates.level_stride();
  to.count = w.gates.count.data() + g.first, to.next = next.data();
  if (gates.has_products()) {
    to.q = w.gates.q.data() + g.first * gates.channels(), to.channels = gates.channels();
    to.k = gates.has_keys() ? w.gates.keys.data() : block.k;
    to.products = w.gates.products.data();
  }
  if (find_own_keys(c, g, keys, own.data())) to.own = own.data();
  const auto& run = careful ? c.gate_kernels.rescale : c.gate_kernels.strip;
  const bool done = run[g.kind](block, strip, to);
  if (done || careful) std::copy_n(next.begin(), g.rows, w.gates.count.begin() + g.first);
  return done;
}

}  // namespace posenc::v0::detail
