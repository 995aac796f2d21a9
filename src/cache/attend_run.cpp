// SPDX-License-Identifier: Apache-2.0
// The tokens of one run as keys of a call: pages, order, positions, and the arrays that belong to keys.
#include "attention/call/check_overlap.h"
#include "attention/engines/engine.h"
#include "attention/plan/plan_call.h"
#include "cache/dense_tokens.h"
#include "cache/key_run.h"
#include "core/shape.h"
#include "posenc/attention/attend.h"
#include "posenc/core/error.h"

namespace posenc::inline v0::detail {

std::vector<KeyRun> key_runs(const CacheState& s, bool all) {
  std::vector<KeyRun> runs;
  std::size_t last = 0;
  for (std::size_t use = 0; use < s.sequence.uses.size(); ++use) {
    const Index* const by = s.shift_of(use);
    const auto is_it = [&](const KeyRun& r) {
      return all || std::equal(r.shift.begin(), r.shift.end(), by);
    };
    if (runs.empty() || !is_it(runs[last])) {
      const auto run = std::find_if(runs.begin(), runs.end(), is_it);
      last = static_cast<std::size_t>(run - runs.begin());
      if (run == runs.end()) runs.push_back({{by, by + s.axes()}, {}});
    }
    runs[last].uses.push_back(use);
  }
  if (runs.empty()) runs.push_back({std::vector<Index>(static_cast<std::size_t>(s.axes())), {}});
  return runs;
}

namespace {

// Positions of slots that hold no token: between those of their neighbours, so that no distance is new.
void fill_holes(Index* at, const std::vector<std::uint8_t>& there, bool causal) {
  const auto n = static_cast<Index>(there.size());
  const auto is_there = [&](Index j) { return there[static_cast<std::size_t>(j)] != 0; };
  for (Index j = 0; j < n;) {
    if (is_there(j)) {
      ++j;
      continue;
    }
    Index end = j;
    while (end < n && !is_there(end)) ++end;
    for (Index hole = j; hole < end; ++hole) {
      if (j == 0)
        at[hole] = end < n ? at[end] : 0;
      else if (end == n)
        at[hole] = causal ? at[hole - 1] + 1 : at[hole - 1];
      else
        at[hole] = at[hole - 1] < at[end] ? at[hole - 1] + 1 : at[hole - 1];
    }
    j = end;
  }
}

struct RunKeys {
  const CacheCall& c;
  const CacheState& s = c.s;
  const KeyRun& run;
  Index size = s.page_size();
  Index keys = c.packed ? s.sequence.tokens : static_cast<Index>(run.uses.size()) * size;
  Index length = 0;
  Index shown = keys;  // of the call: without the free slots of the last page, or with them
  std::vector<Index> table{}, order{}, position{};
  std::vector<std::uint8_t> there{};
  bool holes = false;
  std::vector<std::vector<std::byte>> entries{};

  const PageUse& use(std::size_t n) const { return s.sequence.uses[run.uses[n]]; }

  void find_pages() {
    if (c.packed) {  // of one run
      length = keys;
      return;
    }
    for (std::size_t n = 0; n < run.uses.size(); ++n) {
      const PageUse& u = use(n);
      table.push_back(u.page);
      const bool last = n + 1 == run.uses.size();
      const Index end = last ? u.there.last() + 1 : size;
      holes = holes || u.there != Slots::range(0, end);
      length = static_cast<Index>(n) * size + end;
    }
  }

  template <class F>
  void for_each_key(const F& f) const {
    std::size_t token = 0;
    for (std::size_t n = 0; n < run.uses.size(); ++n)
      for_each_slot(use(n).there, [&](Index slot) {
        f(n, slot,
          c.packed ? token++ : n * static_cast<std::size_t>(size) + static_cast<std::size_t>(slot));
      });
  }

  void find_there() {
    if (!there.empty()) return;
    there.resize(static_cast<std::size_t>(keys));
    for_each_key([&](std::size_t, Index, std::size_t key) { there[key] = 1; });
  }
  void find_order() {
    order.resize(static_cast<std::size_t>(keys));
    for_each_key(
        [&](std::size_t n, Index slot, std::size_t key) { order[key] = s.order_of(use(n), slot); });
    for (std::size_t key = 1; key < order.size(); ++key)
      order[key] = std::max(order[key], order[key - 1]);
  }
  void find_positions(bool causal) {
    find_there();
    position.resize(static_cast<std::size_t>(keys * s.axes()));
    for (Index axis = 0; axis < s.axes(); ++axis) {
      Index* const at = position.data() + axis * keys;
      for_each_key([&](std::size_t n, Index slot, std::size_t key) {
        at[key] = s.pool->anchors(use(n).page, axis)[slot] + s.shift_of(run.uses[n])[axis];
      });
      fill_holes(at, there, causal);
    }
  }

  // [1, keys, shape of an entry], 0 where there is no token.
  ConstTensorView gather(std::size_t array) {
    const TokenArray& a = s.pool->sizes.arrays[array];
    const Index bytes = s.pool->entry_bytes[array];
    std::vector<std::byte>& all = entries.emplace_back(static_cast<std::size_t>(keys * bytes) + 8);
    for_each_key([&](std::size_t n, Index slot, std::size_t key) {
      std::copy_n(s.pool->entry(array, use(n).page, slot), bytes,
                  all.data() + static_cast<Index>(key) * bytes);
    });
    std::vector<Index> shape{1, shown};
    shape.insert(shape.end(), a.shape.begin(), a.shape.end());
    return tensor(static_cast<const void*>(all.data()), a.dtype, shape);
  }

  // The masks and terms of this call do not depend on order if all keys come before all queries.
  bool needs_order() const {
    const Mask& m = c.call.mask;
    if (m.window_left != kUnbounded || m.window_right != kUnbounded || m.chunk != 0 ||
        !m.head_side.empty() || !m.prefix.empty())
      return true;
    if (!c.call.terms.empty() || c.plan != nullptr ||
        c.call.normalisation != Normalisation::softmax)
      return true;
    if (!m.causal || run.uses.empty() || c.query_order.empty()) return false;
    return s.last_order(run.uses.back()) >
           *std::min_element(c.query_order.begin(), c.query_order.end());
  }
};

Positions positions_of(const std::vector<Index>& at, Index axes) {
  Positions p{at.data(), DType::i64, static_cast<std::int32_t>(axes),
              static_cast<Index>(at.size()) / axes};
  p.axis_stride = p.count;
  return p;
}

void put_key_input(Term& t, const TokenArray& a, const ConstTensorView& v) {
  const bool integer = a.dtype == DType::i64 || a.dtype == DType::i32;
  if (integer) {
    PickedRows* const rows = picked_rows(t);
    if (rows == nullptr || !a.shape.empty())
      refuse_field(kCache, a.name, "must be one class a token, for a term that selects rows, term",
                   term_name(t));
    rows->pair.key_class = v;
    return;
  }
  Index shape[4] = {1, v.shape[1], 1, 1};
  std::copy(a.shape.begin(), a.shape.end(), shape + 2);
  const ConstHeads given = heads(tensor(v.data, v.dtype, shape), HeadsLayout::bthd);
  const bool put = std::visit(
      [&](auto& term) {
        if constexpr (requires { term.key.given; }) {
          term.key.given = given;
          return true;
        }
        return false;
      },
      t);
  if (!put)
    refuse_field(kCache, a.name, "must belong to a term with a factor of the key, term",
                 term_name(t));
}

// The inputs of the plan's schemes, those by key from the cache.
std::vector<NamedArray> plan_inputs(const LoweredState& plan, std::span<const NamedArray> given,
                                    RunKeys& keys) {
  std::vector<NamedArray> all(given.begin(), given.end());
  const std::vector<TokenArray>& arrays = keys.s.pool->sizes.arrays;
  for (const PlanScheme& scheme : plan.plan->schemes)
    for (std::size_t n = 0; n < scheme.inputs.size(); ++n) {
      const Input& input = scheme.inputs[n];
      const std::string& name = scheme.input_names[n];
      const auto has = [&](Index size) {
        return std::any_of(input.shape.begin(), input.shape.end(),
                           [&](const auto& s) { return static_cast<Index>(s) == size; });
      };
      if (!has(kKeys) || is_call_tensor(name)) continue;
      if (find_array(given, name) != nullptr)
        refuse_field(kCache, name, "must be a token array of the pool, because it belongs to keys");
      if (has(kQueries))
        refuse_field(kCache, name, "is not supported: it has a number for each pair of tokens");
      const std::size_t array = token_array_index(keys.s, name);
      if (array < arrays.size())
        all.push_back({arrays[array].name, keys.gather(array)});
      else if (!input.optional)
        refuse_field(kCache, name,
                     "must be a token array of the pool, because " + scheme.name() + " reads it");
    }
  return all;
}

}  // namespace

void CacheCall::attend_run(const KeyRun& run, const ConstHeads& q,
                           std::span<const NamedArray> named, const AttentionResult& to,
                           const Executor& executor, ChunkMemory* memory) const {
  RunKeys keys{.c = *this, .run = run};
  keys.find_pages();
  if (memory != nullptr) keys.shown = keys.length;
  DenseTokens dense(s, false);
  AttentionArgs a = call;
  a.q = q;
  static constexpr Index kNone = 0;
  if (by_position) {
    keys.find_positions(call.mask.causal);
    a.query_positions = positions_of(query_position, s.axes());
    a.key_positions = positions_of(keys.position, s.axes());
    a.key_positions.count = keys.shown;
  } else {
    a.query_positions = a.key_positions = {};
  }
  if (memory != nullptr) {
    a.k = rotate_chunk(s, keys.table, keys.length, keys.position, *memory);
    a.v = values_of_chunk(s, keys.table, keys.length, *memory);
  } else if (packed) {
    a.k = dense.stored_keys(), a.v = dense.values();
  } else {
    a.k = s.pool->keys, a.v = s.pool->readable_values();
    const Index* const table = keys.table.empty() ? &kNone : keys.table.data();
    a.block_table = tensor(table, {1, static_cast<Index>(keys.table.size())});
    a.mask.key_length = tensor(&std::as_const(keys).length, {1});
  }
  if (keys.holes) {
    keys.find_there();
    a.mask.key_visible = tensor(std::as_const(keys).there.data(), {1, keys.shown});
  }
  if (keys.needs_order()) {
    keys.find_order();
    a.mask.key_order =
        tensor(keys.order.empty() ? &kNone : std::as_const(keys).order.data(), {1, keys.shown});
    a.mask.query_order = tensor(query_order.data(), {1, call.q.tokens});
  } else {
    a.mask.causal = false, a.mask.query_order = {};
  }
  if (!call.mask.query_document.empty()) a.mask.key_document = keys.gather(array_index("document"));
  std::vector<Term> terms(call.terms.begin(), call.terms.end());
  for (const KeyInput& in : inputs) {
    const std::size_t array = array_index(in.array);
    put_key_input(terms[static_cast<std::size_t>(in.term)], s.pool->sizes.arrays[array],
                  keys.gather(array));
  }
  a.terms = terms;
  if (&run != runs.data()) a.sink = {};
  const Stage rotate{.kind = StageKind::rotate, .rotary = &s.rotation->any_length};
  if (memory == nullptr && s.keeping == KeyKeeping::unrotated && s.rotation->rotates)
    a.prepare = {&rotate, 1};
  if (plan != nullptr) return lowered->forward(a, plan_inputs(*plan, named, keys), to, executor);
  const RotaryPlan* const narrow = &s.rotation->narrow;
  const LoweredCall prepared{.narrow_rotations = {&narrow, 1}};
  check_overlap(a, to, Workspace{});
  CallArena arena({}, CallArena::Own::kept);
  attend_lowered(a, prepared, to, arena, executor);
}

}  // namespace posenc::v0::detail
