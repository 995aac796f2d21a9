// SPDX-License-Identifier: Apache-2.0
// One dictionary of rope_parameters becomes one rotary encoding, with where each field came from.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/encoding_builder.h"
#include "model/hugging_face/config_view.h"
#include "model/hugging_face/head_size.h"
#include "model/hugging_face/scaling_types.h"

namespace posenc::inline v0::hf {

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
  // Of a type whose rows alone do not read it: `read` reads the dictionary, or `check` says what is odd about the values,
  // by field, and sets what is no key.
  struct TypeReader {
    std::string_view type;
    bool (RotaryWriter::*read)() = nullptr;
    void (RotaryWriter::*check)(const Dict& fields) = nullptr;
  };
  static const TypeReader* reader_of(std::string_view type);
  // What a key says, assumed or in the dictionary; checked, with a finding and none where it fails.
  std::optional<Value> stated(const ScalingKey&);
  std::optional<Value> number(const ScalingKey&);
  std::optional<Value> whole(const ScalingKey&);
  std::optional<Value> list(const ScalingKey&);
  std::optional<Value> read(const ScalingKey&);
  std::optional<Value> take(std::string_view key);  // of the type's row
  // The same, and the field is set; none is fine where the file has none or null.
  bool take_optional(std::string_view key);
  bool absent(std::string_view key) const;  // or null
  // scheme.cpp
  std::optional<std::string> type_of_dict();
  bool known_type();
  bool takes_head(const Head&);
  std::optional<Value> base();
  Value pairing() const;
  bool scheme(const Head&);
  bool axial(const Head&);
  // width.cpp
  bool width(const Head&);
  bool fraction_width(const Head&, const Value& fraction, Sourced<Index>& width);
  bool latent_width(const Head&, const Value* fraction);
  bool odd_width(const Head&, Index width) const;
  void odd_frequencies();
  bool mrope();
  std::optional<Value> sections();
  bool xd_sections(const Head&);
  // scaling.cpp
  bool scaling();
  bool dynamic();
  void hold_length(const Dict&);
  bool ntk();
  bool yarn();
  std::optional<Value> yarn_factor(const std::optional<Value>& original);
  bool yarn_ramp(const std::optional<Value>& factor);
  bool yarn_truncate(const std::optional<Value>& factor);
  void check_ramp(double fast, double slow, bool truncate);
  bool yarn_gain(double factor);
  bool longrope();
  bool longrope_factor(const std::optional<Value>& original);
  bool states_gains();
  bool longrope_of_table(Index original);
  bool old_name_lacks_original();
  void check_llama3(const Dict&);
  bool proportional();
  void logit_factor();
  void check_factor(const Value&);
  void check_ratio(const Value& factor, const Value& original);
  void check_original(const Value& original, double longest);
  // hints.cpp
  void unread_keys();
  void inside_another(const std::string& key, const Value& value);
  bool read_elsewhere(const std::string& key, const Json& value) const;
  void theta_place();
  void theta_filled_in(const Value& theta, bool has_dict, bool v5);

  void field(std::string_view name, const Value& v) { out_.encoding.set(name, v); }
  std::optional<Value> assumed(std::string_view field);
  const RopeRules& rules() const;
  Report& report() const { return view_.report(); }
  std::string place(std::string_view key) const;
  const Json* dropped_theta() const;

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

}  // namespace posenc::v0::hf
