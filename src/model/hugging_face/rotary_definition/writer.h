// SPDX-License-Identifier: Apache-2.0
// One dictionary of rope_parameters becomes one rotary encoding, with where each field came from.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "model/encoding_builder.h"
#include "model/hugging_face/config_view.h"
#include "model/hugging_face/rotary_definition/scaling_keys.h"

namespace posenc::hf {

// Sizes of a head: of the q that attention multiplies, and what the rotary functions see.
struct Head {
  Sourced<Index> q_dim, rope_dim, offset;
  bool null_head_dim = false;  // the class leaves head_dim null: its scaled types fail on it
};
// Head sizes of a layer type; none after a finding.
std::optional<Head> head_of(const ConfigView&, const std::string& layer_type);

struct RotaryDefinition {
  EncodingBuilder encoding;
  std::string where;                      // what decided it, for people
  std::string type;                       // rope_type after all renaming
  std::optional<Index> original_context;  // of the scaling, if it has one
};

class RotaryWriter {
 public:
  // theta_beside: the file states theta beside the dictionary, too or alone.
  RotaryWriter(const ConfigView& view, const Dict& dict, bool nested, bool theta_beside)
      : view_(view), dict_(dict), nested_(nested), theta_beside_(theta_beside) {}
  // None after a finding of severity error. Without a head (its sizes are refused already) the rest
  // of the dictionary is looked at, for its findings.
  std::optional<RotaryDefinition> write(const Head*);

 private:
  friend const std::vector<ScalingType>& scaling_types();
  // What a key says, assumed or in the dictionary; checked, with a finding and none where it fails.
  std::optional<Value> stated(const ScalingKey&);
  std::optional<Value> number(const ScalingKey&);
  std::optional<Value> whole(const ScalingKey&);
  std::optional<Value> list(const ScalingKey&);
  std::optional<Value> read(const ScalingKey&);
  std::optional<Value> take(std::string_view key);  // of the type's row
  std::optional<std::string> type_of_dict();
  bool known_type(const std::string&);
  void unknown_type(const std::string&);
  bool takes_head(const Head&);
  std::optional<Value> base();
  bool allowed_by_class(const std::string& type) const;
  const Json* own_width_rule() const;
  bool latent() const;
  Value pairing() const;
  bool scheme(const Head&);
  bool axial(const Head&);
  bool width(const Head&, Index& out);
  bool odd_width(const Head&, Index& out);
  void odd_frequencies();
  bool latent_width(const Head&, const Value* fraction, Index& out);
  bool mrope(Index width);
  const Json* aliases() const;
  bool xd_sections(const Head&);
  bool scaling();
  bool read_rows();
  bool dynamic();
  void hold_length(const Dict&);
  bool ntk();
  bool yarn();
  std::optional<Value> yarn_factor(const std::optional<Value>& original);
  bool yarn_ramp(const std::optional<Value>& factor);
  bool yarn_truncate(const std::optional<Value>& factor);
  void check_ramp(double fast, double slow, bool truncate);
  bool yarn_gain(const std::optional<Value>& factor);
  bool longrope();
  bool longrope_factor(const std::optional<Value>& original);
  bool states_gains();
  bool old_name_lacks_original();
  bool longrope_of_table(Index original);
  bool longrope_of_gains();
  void check_llama3(const Dict&);
  bool proportional();
  std::optional<Value> proportional_fraction();
  void logit_factor();
  void check_factor(const Value&);
  void check_ratio(const Value& factor, const Value& original);
  void unread_keys();
  void theta_place();
  const Json* dropped_theta() const;
  void field(std::string_view name, const Value&);
  std::optional<Value> assumed(std::string_view field);
  Report& report() const { return view_.report(); }
  std::string place(std::string_view key) const;

  const ConfigView& view_;
  const Dict& dict_;
  bool nested_, theta_beside_;
  const ScalingType* type_ = nullptr;
  Index pairs_ = 0;  // 0: not known, since the head is refused
  Index odd_ = 0;    // the width before it was rounded up
  double base_ = 0;
  bool fixed_alpha_ = false;  // HunYuan's alpha makes dynamic static
  RotaryDefinition out_{};
};

}  // namespace posenc::hf
