// SPDX-License-Identifier: Apache-2.0
// Layers of one part of a file: text, vision, audio.
#pragma once
#include <string_view>
#include <vector>

#include "model/hugging_face/config_view.h"
#include "posenc/model/spec.h"

namespace posenc::inline v0::hf {

struct PartLayers {
  std::vector<LayerSpec> layers;
  std::vector<InputEncoding> input;
  std::optional<Index> original_context;  // of the scaling
};
// context: the length that length rules get.
PartLayers read_layers(const ConfigView&, Index context);

// Schemes other than rotary: what acts at the input and in the score (not_rotary.cpp).
void read_not_rotary(const ConfigView&, const std::string& scheme, PartLayers&);
// A layer's query temperature and its fields (layers.cpp).
void give_temperature(const ConfigView&, const QueryTemperature&, const Value& beta, Value period,
                      LayerSpec&);
// What stands at the input (input_side.cpp), where `kind` has a scheme here: learned, sinusoidal
// ...
void read_input(const ConfigView&, const std::string& kind, PartLayers&);
// What the class multiplies embeddings by, with a finding (input_scale.cpp).
std::optional<Value> input_gain(const ConfigView&, Index width, bool learned);
// The rules as a key of the file makes them, where the table says `variants`; none after a finding
// (variants.cpp).
std::optional<ClassRules> variant_rules(const ConfigView&);
// What the reader cannot describe, by name: an error. False where the table says nothing of it.
bool refused_by_name(const ConfigView&);
// Whose code is meant, where it is not transformers' own: a note (own_code.cpp).
void remote_code(const ConfigView&);
// The code that auto_map names beside a type of transformers: a note. After it `own_code` says which
// code; empty where there is none.
void code_of_known_type(const ConfigView& whole, const ConfigView& text);
std::string own_code(const ConfigView&);
// What auto_map of one object names for the model, else for its configuration; empty: nothing.
std::string code_of(const Json& object);
// What a person can do about a model type that is not known (unknown_type.cpp).
std::string advice_on_type(std::string_view type, const Json& config);
// qk_norm of each layer, by the class (score/numbers.cpp).
void normalise_q_and_k(const ConfigView&, std::vector<LayerSpec>&);
// scale, softcap and sinks of each layer (score/numbers.cpp).
void scale_and_cap(const ConfigView&, std::vector<LayerSpec>&);
// cached_key_channels of each layer (key_cache.cpp); layer_types: the type of each.
void count_cached_keys(const ConfigView&, const std::vector<std::string>& layer_types,
                       std::vector<LayerSpec>&);
// Bytes of one number of the cache, by the dtype of the text part or of the whole file.
Sourced<Index> cache_element_bytes(const ConfigView& text, const ConfigView& whole);
// The rules as the decoder of the same file sees them (variants.cpp).
ClassRules decoder_rules(const ConfigView& encoder);
// A vision tower with an axial rotary (towers.cpp).
PartLayers read_vision(const ConfigView&);
// Which of a type's parts holds the text: text_config before decoder before an omni model's
// thinker.
std::string text_key(const ClassRules&);
std::vector<Tower> read_towers(const ConfigView& whole, const std::string& text_part,
                               Index context);

// Keys about positions that the class of these layers does not read (unread.cpp).
void unread_positions(const ConfigView&, const std::vector<LayerSpec>&);
// Sizes that do not fit together in the way of published models (implausible.cpp).
void implausible_sizes(const ConfigView&);
// What a class that a person chose for the file filled in (assumed.cpp).
void filled_by_class(const ConfigView&, const Json& file, const std::vector<LayerSpec>&);
// What a person assumed: a note each, an error where it names nothing (assumed.cpp).
void unused_assumptions(Report&);
// What the class refuses on loading and nobody asked for (refusals.cpp).
void refused_on_loading(const ConfigView&, std::size_t layers);

// A config of diffusers, by its _class_name (diffusers.cpp).
bool is_diffusers(const Json& config);
void read_diffusers(const Json& config, Report&, ModelSpec&);

// Keys that nobody reads and that are nearly one that somebody reads (near_keys.cpp).
// Which of the names a misspelt one means: another case, camelCase, other underscores, or few letters
// wrong. Empty: none of them, or the name is one of them.
std::string_view nearly(std::string_view name, const std::vector<std::string_view>& known);
// The same by whole words: another order, an abbreviation, one of many left out.
std::string_view of_words(std::string_view name, const std::vector<std::string_view>& known);
// "; did you mean factor?", for a member of rope_scaling; empty where nothing is near.
std::string meant_rope_member(std::string_view name);

// What the class holds counts as looked for, whether a position depends on it or not.
void held_keys(const ConfigView&);
// Warnings of the whole file, after everything was read.
void near_keys(const Json& file, const ModelSpec&, Report&);

}  // namespace posenc::v0::hf
