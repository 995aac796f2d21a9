// SPDX-License-Identifier: Apache-2.0
// A call as a rank of a ring runs it: queries and keys rotated once, and the calls of engines that a step consists of.
#pragma once
#include <deque>
#include <optional>
#include <vector>

#include "attention/call/call_arena.h"
#include "attention/lowered/lowered_call.h"
#include "parallel/exchange.h"
#include "parallel/key_packet.h"

namespace posenc::inline v0::detail {

// One call of an engine: some queries and some keys, by their places in the tensors.
struct RingPiece {
  TokenRun q, k;
  bool by_order = false;  // all tokens, whose orders the call reads; else both count up
  bool has_sink = false;  // one call of each query has the sink, one more logit
};

class RingCall {
 public:
  // The call must have passed check_ring.
  RingCall(const AttentionArgs&, const LoweredCall&, const Executor&);
  RingCall(const RingCall&) = delete;
  RingCall& operator=(const RingCall&) = delete;

  KeyedCall own;        // its q in double or float, q and k rotated
  LoweredCall lowered;  // of its terms and of stages that are left
  DType type;           // of q, and of what is summed: f64 or f32
  bool rotates = false;

  // Frequencies must hold for the length of the sequence.
  void check_length(Index length) const;
  // The gradients of rotated q and k to those of the caller's, in place.
  void rotate_back(const Heads& d_q, const Heads& d_k, const Executor&) const;
  // What a step computes with these keys. own_keys: they are the rank's.
  std::vector<RingPiece> pieces(KeyedCall& step, bool own_keys) const;
  // The call of a piece.
  static KeyedCall call_of(const KeyedCall& step, const RingPiece&);

 private:
  // Rotations that run in each step must not refuse its length: check_length has looked at the whole sequence.
  void allow_lengths();

  std::vector<const RotarySpec*> rotary_;  // of all rotate stages
  std::vector<RotaryPlan> rotations_;      // of `type`, where there are no other stages
  std::deque<RotarySpec> any_length_;
  std::vector<Stage> stages_;
  Positions query_positions_, key_positions_;
  PacketBytes q_, k_;
};

// Throws [ring]: what a ring does not compute, beside what check_attention rejects.
void check_ring(const AttentionArgs&, const Group&);
// Throws [attention]: positions with fewer axes than the rotation.
void check_axes(const RotarySpec&, const Positions&);
// Throws [who]: k or v in q8_0 blocks.
void check_no_blocks(std::string_view who, const AttentionArgs&);

// Dense views of new memory.
Heads new_heads(const ConstHeads& shape, DType, PacketBytes& memory);
TensorView new_sums(const ConstHeads& out, PacketBytes& memory);
// to += from, or to = from.
void add_heads(const Heads& to, const ConstHeads& from);
void copy_heads(const Heads& to, const ConstHeads& from);

// The result of some queries.
ConstAttentionResult narrowed(const ConstAttentionResult&, const TokenRun&) noexcept;

// Memory of the calls of all pieces, one after the other.
class PieceMemory {
 public:
  template <class F>
  void run(const F& fn) {
    const std::size_t needed = bytes_of(fn);
    if (needed > bytes_.size()) {
      bytes_ = PacketBytes();
      bytes_.resize(needed);
    }
    CallArena arena(bytes_);
    fn(arena);
  }

 private:
  PacketBytes bytes_;
};

// Keys that go round: those of the next step arrive while a step computes.
class KeyRing {
 public:
  KeyRing(const Group&, RingCall&);
  // The keys of this step; the exchanges for the next one have begun.
  KeyedCall& step();
  // Waits for the keys of the next step.
  void advance();
  std::vector<const Exchange*> exchanges() const {
    std::vector<const Exchange*> all;
    for (const Exchange& e : exchanges_) all.push_back(&e);
    return all;
  }
  Index steps() const noexcept { return group_.size(); }
  bool has_own() const noexcept { return at_ == 0; }

 private:
  const Group& group_;
  KeyedCall keys_;
  PacketBytes copies_, now_, next_;  // now_: empty while the keys are the rank's own
  std::vector<ConstBytes> fields_;   // of the keys of this step
  std::deque<Exchange> exchanges_;
  Index at_ = 0;
};

}  // namespace posenc::v0::detail
