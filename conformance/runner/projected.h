// SPDX-License-Identifier: Apache-2.0
// q, k and v as a layer makes them: rows of hidden states through linear layers, and what comes out
// through another (`project` of the operation attend). The layer is not ours; it is computed here so
// that what stands inside can be compared where a case has no q, k and v.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "conformance/runner/tensors.h"

namespace posenc::conformance {

class Projected {
 public:
  // nullptr where the check has no `project`.
  static std::unique_ptr<Projected> of(const Check&);

  // "q", "k", "v".
  HeadsArray heads(std::string_view name) const;
  // What `out` is compared with: the heads of each token behind each other, through the layer.
  bool has_output() const { return !out_.weight.empty() || !tokens_.empty() || residual_; }
  std::vector<double> output(const HeadsArray& out) const;

  // The way back. d_output as output gives it; d of the heads of out, in [b, t, h, d].
  HeadsArray pull_output(const std::vector<double>& d_output, const HeadsArray& out);
  void pull_heads(std::string_view name, const HeadsArray& d);
  // "x" (summed where q, k and v read one array), "q.weight", "q.bias" ... "out.weight", "out.bias".
  void expect_gradients(Check& back) const;

 private:
  struct Linear {
    std::string x;  // the array of hidden states
    std::vector<double> weight, bias, d_weight, d_bias;
    Index outputs = 0;
  };
  struct Hidden {
    std::string name;
    std::vector<double> value, normed, gradient;
    Index rows = 0, width = 0;
  };
  std::vector<Hidden> hidden_;
  Linear q_, k_, v_, out_;
  Index heads_ = 1, batch_ = 1, count_ = 0;
  std::vector<Index> tokens_;  // [batch, count] rows of a hidden array, -1: zeros; empty: in order
  bool residual_ = false, normed_ = false;

  explicit Projected(const Check&);
  void check_sizes() const;
  void read_tokens(const Check&, const Json&);
  void read_linear(const Check&, std::string_view name, Linear&);
  Hidden& hidden(const Check&, const std::string& name);
  std::size_t of_linear(const Linear&) const;  // among hidden_
  Linear& linear(std::string_view name);
  const Linear& linear(std::string_view name) const;
  Index row(Index token) const {
    return tokens_.empty() ? token : tokens_[static_cast<std::size_t>(token)];
  }
};

}  // namespace posenc::conformance
