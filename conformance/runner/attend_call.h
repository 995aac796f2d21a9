// SPDX-License-Identifier: Apache-2.0
// A call of attention as a check describes it: tensors, masks and numbers in double, and the plan of
// its schemes.
#pragma once
#include <cmath>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "conformance/runner/projected.h"
#include "conformance/runner/tensors.h"
#include "posenc/attention/plan.h"
#include "posenc/model/layer_attention.h"
#include "posenc/model/spec.h"
#include "posenc/positions.h"

namespace posenc::conformance {

// q, k, v and what has their shape: letters b, t, h, d. `axes` by name, else thd or bhtd by rank.
std::string attention_letters(const Check&, const Slice&);

class AttendCall {
 public:
  explicit AttendCall(const Check&);
  AttendCall(const AttendCall&) = delete;
  AttendCall& operator=(const AttendCall&) = delete;

  std::unique_ptr<Projected> projected;  // where the check makes q, k and v of hidden states
  AttentionArgs args;
  std::optional<AttentionPlan> plan;
  std::optional<LoweredAttention> lowered;
  std::vector<NamedArray> parameters, inputs;
  HeadsArray q, k, v;

  // The arguments with the plan's scale, for functions that take no plan.
  AttentionArgs scaled() const {
    AttentionArgs a = args;
    a.scale = given_scale_ ? *given_scale_ : 1 / std::sqrt(static_cast<double>(args.q.dim));
    return a;
  }
  // Sizes of what is by pair: letters b, h, q, k.
  Index batch() const { return args.q.batch; }
  Index keys() const { return keys_; }

 private:
  std::deque<Array> arrays_;
  std::deque<std::string> names_;
  std::vector<Stage> stages_;
  OwnedPositions query_positions_, key_positions_;
  std::optional<LayerSpec> layer_;  // of `model`
  std::string weights_;             // where the model's lie
  LayerAttention of_layer_;
  Index keys_ = 0;
  std::optional<double> given_scale_;

  HeadsArray read_heads(const Check&, const char* name) const;
  ConstTensorView keep(Array);
  ConstTensorView real(const Check&, const char* name);
  ConstTensorView integers(const Check&, const char* name);
  ConstTensorView by_pair(const Check&, const char* name, bool flags);
  void read_arrays(const Check&);
  void read_layer(const Check&);
  void read_numbers(const Check&);
  void read_window(const Check&);
  void read_stages(const Check&);
  void read_positions(const Check&);
  void read_layer_parameters(const Check&, std::vector<Parameter>& needed);
  void layer_stages();
  void make_plan(const Check&);
  void plan_of_layer(const std::vector<std::string>& more, const AttentionSizes&);
  static void order_input(const Check&, const Slice&, ConstTensorView&);
  void read_named(const Check&);
};

}  // namespace posenc::conformance
