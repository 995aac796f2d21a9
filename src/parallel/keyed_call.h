// SPDX-License-Identifier: Apache-2.0
// The arguments of a call with lists of their own, so that what is by key, or by query, can be replaced by other
// tokens' arrays.
#pragma once
#include <vector>

#include "posenc/attention/attend.h"

namespace posenc::inline v0::detail {

// Neighbouring tokens: the first one's place and order.
struct TokenRun {
  Index at = 0, order = 0, count = 0;
};

class KeyedCall {
 public:
  explicit KeyedCall(const AttentionArgs&);
  KeyedCall(const KeyedCall& other) : KeyedCall(other.args) {}
  KeyedCall& operator=(const KeyedCall&) = delete;

  AttentionArgs args;  // its terms and regions are the lists below

  // fn(ConstHeads&) of [B, keys, heads, channels]: k, v, vectors by key of terms, k of regions.
  template <class F>
  void each_key_heads(const F& fn) {
    fn(args.k), fn(args.v);
    for (Term& t : terms_)
      if (Factor* const f = key_factor(t); f != nullptr && is_by_token(*f, keys())) fn(f->given);
    for (ScoreRegion& r : regions_) fn(r.qk.k);
  }
  // fn(ConstTensorView&, axis of the keys or -1): orders, documents, flags, classes, lengths.
  template <class F>
  void each_key_array(const F& fn) {
    for (ConstTensorView* v :
         {&args.mask.key_order, &args.mask.key_document, &args.mask.key_visible})
      fn(*v, 1);
    for (ConstTensorView* v : {&args.mask.key_length, &args.mask.key_cu_seqlens}) fn(*v, -1);
    for (Term& t : terms_)
      if (PickedRows* const r = picked_rows(t)) fn(r->pair.key_class, 1);
  }

  // Only some queries and keys.
  void narrow(const TokenRun& queries, const TokenRun& keys);

  Index keys() const noexcept { return args.k.tokens; }
  Term& term(std::size_t n) noexcept { return terms_[n]; }
  static Factor* key_factor(Term&) noexcept;  // null: a term without one
  static Factor* query_factor(Term&) noexcept;
  static bool is_by_token(const Factor& f, Index tokens) noexcept {
    return f.given.data != nullptr && f.given.tokens == tokens;
  }

 private:
  std::vector<Term> terms_;
  std::vector<ScoreRegion> regions_;
};

// Tokens [at, at + count) of a view; null stays null.
template <class Data>
BasicHeads<Data> narrowed(BasicHeads<Data> h, const TokenRun& run) noexcept {
  if (h.data == nullptr) return h;
  using Byte = std::conditional_t<std::is_const_v<Data>, const std::byte, std::byte>;
  h.data = static_cast<Byte*>(h.data) + run.at * h.token_stride * size_of(h.dtype);
  h.tokens = run.count;
  return h;
}
template <class Data>
BasicTensorView<Data> narrowed(BasicTensorView<Data> v, std::size_t axis,
                               const TokenRun& run) noexcept {
  if (v.empty()) return v;
  using Byte = std::conditional_t<std::is_const_v<Data>, const std::byte, std::byte>;
  v.data = static_cast<Byte*>(v.data) + run.at * v.stride[axis] * size_of(v.dtype);
  v.shape[axis] = run.count;
  return v;
}

// The runs of an order [1, T]; empty where there are more than `most`, or several rows.
std::vector<TokenRun> runs_of(const ConstTensorView& order, std::size_t most);

}  // namespace posenc::v0::detail
