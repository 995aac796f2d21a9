// SPDX-License-Identifier: Apache-2.0
// A call of attention from files: what `attend` and `bias` share.
#pragma once
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common.h"
#include "posenc/attention/plan.h"
#include "posenc/model/layer_attention.h"

namespace posenc::report {

// What acts in attention: schemes as text, and of a model its layer, which has its own besides.
struct ScoreEncodings {
  std::string title{};
  std::vector<std::string> texts{};  // SCHEME text; none: nothing but content
  const LayerSpec* layer = nullptr;
  std::string weights{};  // ModelSpec::weights of the layer's model
};
ScoreEncodings score_encodings(const Subject&, const SubjectOptions&,
                               const std::vector<std::string>& with);
// Schemes of the score alone, of the first layer that was asked for and has one. Throws InputError:
// nothing acts in the score there, or its settings are not read.
ScoreEncodings bias_encodings(const Subject&, const SubjectOptions&);
// The plan of a layer with further schemes, or of schemes alone, resolved for `length`.
AttentionPlan plan_of(const ScoreEncodings&, const LayerAttention*, const AttentionSizes&,
                      Index length);

// Learned arrays by name from --params (or drawn with --start), inputs from NAME=F, in f64 or as
// integers. Arrays that the plan does not know are refused by the plan, other tensors of a file are
// left alone.
class NamedFiles {
 public:
  // What a model's layer learns comes from its weights, unless `file` has it.
  void read_parameters(const std::vector<Parameter>&, const std::string& file,
                       std::optional<Index> start, const ScoreEncodings&);
  void read_inputs(const std::vector<Input>&, const std::vector<std::string>& given);
  // Real inputs of self-attention that are not `given`, normal of deviation 1; key_X is query_X.
  // Before read_inputs. Gives their names.
  std::string draw_inputs(const std::vector<Input>&, const std::vector<std::string>& given,
                          const CallData& sizes, Index seed);
  const std::vector<NamedArray>& parameters() const { return parameters_; }
  const std::vector<NamedArray>& inputs() const { return inputs_; }

 private:
  std::deque<std::string> names_;
  std::deque<Array> arrays_;
  std::vector<NamedArray> parameters_, inputs_;
  void add(std::vector<NamedArray>& to, const std::string& name, Array a);
  void add_values(const std::string& name, const std::vector<Index>& shape,
                  const std::vector<double>& values);
  void read_weights(std::vector<Parameter>& others, const ScoreEncodings&);
};

// [heads] of a layer that has sinks, from its model's weights.
Array sinks_of(const ScoreEncodings&, Index n_heads);

// [t], [b, t] or [axes, b, t] positions of tokens, or their order from `first`.
PositionList positions_or_order(const std::string& given, Index first, Index tokens,
                                const char* option);
// What reads neither query nor key: [heads, queries, keys], f64. `params`: file of what the schemes
// learn. Throws InputError where a scheme reads them.
Array plain_bias(const ScoreEncodings&, const SubjectOptions&, const std::string& params,
                 const std::vector<std::string>& inputs, const PositionList& queries,
                 const PositionList& keys, Index n_heads, Index head_dim);
// The same by distance, query - key: [heads, distances].
Array distance_bias(const ScoreEncodings&, const SubjectOptions&, const std::string& params,
                    const PositionList& distances, Index n_heads, Index head_dim = 64,
                    const std::vector<std::string>& inputs = {});
// f64 copy of any real array.
Array as_doubles(const Array&);

}  // namespace posenc::report
