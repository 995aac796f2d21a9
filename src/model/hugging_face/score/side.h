// SPDX-License-Identifier: Apache-2.0
// What acts in the score of a class without rotary: which scheme, its fields by the class's rules
// and the file's keys, and where its parameters stand among the weights.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "model/encoding_builder.h"
#include "model/hugging_face/config_view.h"
#include "posenc/model/spec.h"

namespace posenc::inline v0::hf {

// A layer among the stages of an image model, and what kind it is.
struct ScorePlace {
  Index stage = 0, block = 0, layer = 0;
  bool shrinks = false;  // the last of its stage, whose queries are fewer
  bool sliding = false;  // it has a window
};

class ScoreSide {
 public:
  // given: the scheme that the class's rules name.
  ScoreSide(const ConfigView&, const std::string& given);
  // none: nothing acts in the score.
  const std::string& scheme() const { return scheme_; }
  // Scheme, encodings and fields of a layer that attends.
  void give(LayerSpec&);

 private:
  ScorePlace place_of(Index layer) const;
  std::string tensor_name(std::string pattern, Index layer) const;
  void add_tensors(LayerEncoding&, const ScoreRules&, Index layer) const;
  void note_unread(const ScoreRules&, const EncodingBuilder&) const;
  bool give(const ScoreRules&, LayerSpec&);
  // Only the second of the class's definitions acts.
  bool also_alone() const { return scheme_ == view_.rules().score_also_alone; }

  const ConfigView& view_;
  std::string scheme_;
  std::vector<Index> stages_;  // layers of each; empty: one stage
};

// Whether a scheme of this name acts at the input, by the registry.
bool acts_at_input(std::string_view scheme);
// Fields that no one key holds, by the name of a rule (fields.cpp): false after a finding.
bool score_fields(const ConfigView&, const std::string& rule, const ScorePlace&, EncodingBuilder&);
// Rules of by_stage_and_type.cpp.
bool inkling_fields(const ConfigView&, const ScorePlace&, EncodingBuilder&);
bool inkling2_fields(const ConfigView&, const ScorePlace&, EncodingBuilder&);
bool levit_fields(const ConfigView&, const ScorePlace&, EncodingBuilder&);
// {module} of a tensor's name.
std::string levit_module(const ConfigView&, const ScorePlace&);
// Each {layer} or the like of a pattern.
void fill(std::string& pattern, std::string_view name, const std::string& value);
// Whether a list, or names joined by |, under the key has the word.
bool lists_word(const ConfigView&, const std::string& key, std::string_view word);

}  // namespace posenc::v0::hf
