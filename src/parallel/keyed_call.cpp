// SPDX-License-Identifier: Apache-2.0
#include "parallel/keyed_call.h"

#include "attention/call/order_view.h"

namespace posenc::inline v0::detail {

KeyedCall::KeyedCall(const AttentionArgs& a)
    : args(a),
      terms_(a.terms.begin(), a.terms.end()),
      regions_(a.regions.begin(), a.regions.end()) {
  args.terms = terms_;
  args.regions = regions_;
}

Factor* KeyedCall::key_factor(Term& t) noexcept {
  if (auto* const product = std::get_if<ProductTerm>(&t)) return &product->key;
  if (auto* const decay = std::get_if<DecayTerm>(&t)) return &decay->key;
  return nullptr;
}

Factor* KeyedCall::query_factor(Term& t) noexcept {
  if (auto* const product = std::get_if<ProductTerm>(&t)) return &product->query;
  if (auto* const decay = std::get_if<DecayTerm>(&t)) return &decay->query;
  return nullptr;
}

namespace {

void narrow_positions(Positions& p, const TokenRun& run) noexcept {
  if (p.data == nullptr) return;
  p.data = static_cast<const std::byte*>(p.data) + run.at * p.token_stride * size_of(p.type);
  p.count = run.count;
}

}  // namespace

void KeyedCall::narrow(const TokenRun& q, const TokenRun& k) {
  const Index queries = args.q.tokens;
  each_key_array([&](ConstTensorView& v, int axis) {
    if (axis >= 0) v = narrowed(v, static_cast<std::size_t>(axis), k);
  });
  for (Term& t : terms_) {
    if (Factor* const f = query_factor(t); f != nullptr && is_by_token(*f, queries))
      f->given = narrowed(f->given, q);
    if (PickedRows* const r = picked_rows(t))
      r->pair.query_class = narrowed(r->pair.query_class, 1, q);
  }
  for (ScoreRegion& r : regions_) r.qk.q = narrowed(r.qk.q, q);
  for (ConstTensorView* v : {&args.mask.query_order, &args.mask.query_document, &args.query_factor})
    *v = narrowed(*v, 1, q);
  narrow_positions(args.query_positions, q);
  narrow_positions(args.key_positions, k);
  // Last, since keys() tells what is by key.
  std::vector<ConstHeads*> by_key;
  each_key_heads([&](ConstHeads& h) { by_key.push_back(&h); });
  for (ConstHeads* h : by_key) *h = narrowed(*h, k);
  args.q = narrowed(args.q, q);
}

std::vector<TokenRun> runs_of(const ConstTensorView& order, std::size_t most) {
  std::vector<TokenRun> runs;
  if (order.empty() || order.shape[0] != 1) return runs;
  for (Index t = 0; t < order.shape[1]; ++t) {
    const Index o = read_index(order, 0, t);
    if (!runs.empty() && o == runs.back().order + runs.back().count) {
      ++runs.back().count;
      continue;
    }
    if (runs.size() == most) return {};
    runs.push_back({t, o, 1});
  }
  return runs;
}

}  // namespace posenc::v0::detail
