// SPDX-License-Identifier: Apache-2.0
// What a file or a person says and nobody reads.
#include <algorithm>
#include <string_view>

#include "model/layers.h"

namespace posenc::hf {
namespace {

// Keys by which the code of some model changes its positions. Where the class of a file does not
// read one of them, the file was meant for other code.
constexpr std::string_view kOfPositions[] = {"alibi",
                                             "use_alibi",
                                             "dual_chunk_attention_config",
                                             "rope_ratio",
                                             "rotary_emb_base",
                                             "rotary_emb_fraction",
                                             "rotary_scaling_factor",
                                             "rotary_pct",
                                             "rotary_percent",
                                             "rope_pct",
                                             "rope_percent",
                                             "rotary_dim",
                                             "use_dynamic_ntk",
                                             "use_logn_attn",
                                             "no_rope_layers",
                                             "rope_interleaved",
                                             "mrope_section",
                                             "position_embedding_type"};

// Names of other programs, or of one class, for something that has another name in most.
struct Alias {
  std::string_view key, means;
};
constexpr Alias kAliases[] = {{"rope_base", "rope_theta"},
                              {"rotary_base", "rope_theta"},
                              {"rope_freq_base", "rope_theta"},
                              {"rope_thetas", "rope_theta by layer"},
                              {"rope_local_base_freq", "rope_theta of sliding layers"},
                              {"local_rope_theta", "rope_theta of sliding layers"},
                              {"rope_scale", "factor of rope_scaling"},
                              {"rope_scaling_factor", "factor of rope_scaling"},
                              {"ntk_alpha", "alpha of rope_scaling"},
                              {"rotary_percentage", "partial_rotary_factor"},
                              {"partial_rotary_factors", "partial_rotary_factor by layer"}};

// SCHEME fields that --assume may give; other names are keys of the file.
bool is_scheme_field(const std::string& key) {
  static constexpr std::string_view kNames[] = {"pairing",   "base",         "rotary_dim", "offset",
                                                "direction", "output_order", "sections"};
  return key.find('.') != std::string::npos ||
         std::find(std::begin(kNames), std::end(kNames), key) != std::end(kNames);
}

// Whether something looked at the place, above it or below it.
bool looked_at(const Reading& reading, std::string_view key) {
  const std::string path(key.substr(key[0] == '#' ? 1 : 0));
  if (path.ends_with("/model_type")) return true;
  const std::string place = reading.file + "#" + path;
  for (const std::string& read : reading.looked)
    if (read == place || place.starts_with(read + "/") || read.starts_with(place + "/"))
      return true;
  return false;
}

// How the class puts positions into its attention: rope, alibi, none ...
std::string scheme_of(const ConfigView& view) {
  const Json* scheme = view.entry().find("scheme");
  return scheme ? scheme->as_string() : "";
}

// Whether an unread key says what the class does anyway, so that nothing is lost with it.
bool says_nothing_new(const ConfigView& view, std::string_view key, const Json& held) {
  const std::string scheme = scheme_of(view);
  if (key == "position_embedding_type") {
    const std::string said = held.is_string() ? held.as_string() : "";
    const bool turns = said == "rope" || said == "rotary";
    return said == "absolute" || (turns && scheme == "rope") || (said == scheme && !said.empty());
  }
  if (key == "alibi" || key == "use_alibi") return scheme == "alibi";
  if (!held.is_number()) return false;
  if (key == "rotary_emb_base" || key == "rope_base" || key == "rotary_base" ||
      key == "rope_freq_base") {
    const auto theta = view.value("rope_theta");
    return theta && theta->value.is_number() && theta->value.as_number() == held.as_number();
  }
  const bool factor = key == "rope_ratio" || key.ends_with("scaling_factor") ||
                      key == "rope_scale" || key.ends_with("fraction") || key.ends_with("pct") ||
                      key.ends_with("percent") || key.ends_with("percentage");
  return factor && held.as_number() == 1;
}

// DBRX's files state theta where its class stores it and its rotary does not look.
void theta_of_attention(const ConfigView& view) {
  const Json* inner = view.object().find("attn_config");
  const Json* theta = inner && inner->is_object() ? inner->find("rope_theta") : nullptr;
  if (scheme_of(view) != "rope" || !theta || !theta->is_number() ||
      view.object().find("rope_theta") || view.object().find("rope_parameters"))
    return;
  view.reading().warn("key_ignored",
                      "attn_config.rope_theta is " + shown(*theta) + ", and " + view.class_name() +
                          " turns by rope_parameters: a theta the model was trained with is lost",
                      view.where("attn_config") + "/rope_theta",
                      "state rope_theta at the top level");
}

}  // namespace

void unread_positions(const ConfigView& view) {
  theta_of_attention(view);
  const auto unread = [&](std::string_view key) -> const Json* {
    const Json* held = view.object().find(key);
    if (!held || !truthy(*held) || view.reading().looked.count(view.where(key)) != 0 ||
        says_nothing_new(view, key, *held))
      return nullptr;
    return held;
  };
  for (const Alias& alias : kAliases)
    if (const Json* held = unread(alias.key))
      view.reading().warn("alias_not_read",
                          std::string(alias.key) + " (" + std::string(alias.means) +
                              ") is not read by " + view.class_name() + ", got " + shown(*held),
                          view.where(alias.key),
                          "write the name that the class reads, if it is meant");
  for (const std::string_view key : kOfPositions) {
    const Json* held = unread(key);
    if (!held) continue;
    view.reading().warn("key_ignored",
                        std::string(key) + " is not read by " + view.class_name() + ", got " +
                            shown(*held) + ": weights made with it need other code",
                        view.where(key), "remove it, or use the code that reads it");
  }
}

void unused_assumptions(Reading& reading) {
  for (const auto& [key, text] : reading.assume) {
    const bool path = key.starts_with("/") || key.starts_with("#/");
    if (!reading.used.count(key) || (path && !looked_at(reading, key)))
      reading.error("assume_unused",
                    "--assume " + key + "=" + text + " names nothing that was read",
                    "--assume " + key,
                    path                   ? "name a key that the model's class reads"
                    : is_scheme_field(key) ? "this model has no such field"
                                           : "name a SCHEME field, or a key as /path/in/the/file");
    else
      reading.note("assumed", key + " = " + text + " is a person's decision, not the file's",
                   "--assume " + key);
  }
}

}  // namespace posenc::hf
