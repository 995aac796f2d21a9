// SPDX-License-Identifier: Apache-2.0
// The call of a rank that has all tokens and some heads, and where its gradients go.
#pragma once
#include <deque>
#include <optional>
#include <vector>

#include "parallel/head_exchange.h"
#include "parallel/ring.h"
#include "parallel/shared_gradients.h"

namespace posenc::inline v0::detail {

// Made on all ranks together, of calls that they agreed on.
class HeadsCall {
 public:
  HeadsCall(const Group&, const AttentionArgs& own);
  HeadsCall(const HeadsCall&) = delete;
  HeadsCall& operator=(const HeadsCall&) = delete;

  const Group& group;
  const AttentionArgs& own;  // all heads of this rank's tokens
  const TokenPlaces queries, keys;
  AttentionArgs args;
  DType type;  // of results and gradients on their way

  TensorView by_head(const TensorView& v, std::size_t axis) const {
    return block_of(v, axis, group.rank(), group.size());
  }
  Heads by_head(const Heads& h) const { return block_of(h, group.rank(), group.size()); }

 private:
  void place_mask();
  void place(Stage&);
  void place(ScoreRegion&);
  template <class T>
  void place_term(T&);
  void place(Factor&, Index tokens, const TokenPlaces&);
  ConstTensorView by_head(const ConstTensorView& v, std::size_t axis) const {
    return block_of(v, axis, group.rank(), group.size());
  }
  ConstHeads exchanged(const ConstHeads&, const TokenPlaces&);
  // key_visible of the rank's keys below key_length.
  ConstTensorView visible_keys();

  std::vector<Term> terms_;
  std::vector<Stage> stages_;
  std::vector<ScoreRegion> regions_;
  std::deque<PacketBytes> exchanged_;
  GatheredTokens gathered_;
  std::vector<std::uint8_t> visible_;
};

// Where the gradients of the call go, and how they come home.
class HeadsGradients {
 public:
  HeadsGradients(const HeadsCall&, const AttentionGradients& to, const SummedGradients&);
  HeadsGradients(const HeadsGradients&) = delete;
  HeadsGradients& operator=(const HeadsGradients&) = delete;

  AttentionGradients all;
  // To the rank of each token, and sums over the ranks.
  void finish(const Group&);

 private:
  // Of an array of this rank's tokens, as the call has it; zeros.
  Heads by_token(const Heads& to, const ConstHeads& in_call, const TokenPlaces&);
  Heads of_factor(const Heads& to, const Factor& own, Index tokens, const Factor& in_call,
                  const TokenPlaces&, bool over_ranks);
  TermGradient of_term(const TermGradient& to, std::size_t term, bool over_ranks);

  const HeadsCall& call_;
  SharedGradients shared_;
  std::vector<TermGradient> terms_;
  std::vector<StageGradient> stages_;
  std::vector<QK> regions_;
  struct Return {
    const TokenPlaces& places;
    Heads all, to;
  };
  std::vector<Return> returns_;
  std::deque<PacketBytes> memory_;
};

}  // namespace posenc::inline v0::detail
