// SPDX-License-Identifier: Apache-2.0
// What a model type means to its program: one entry of a file of data/hugging_face/models, read once. A
// member that is not named here is refused. tools/model_table/README.md has the legend, made of describe.
#pragma once
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/hugging_face/class_rules/members.h"
#include "model/hugging_face/class_rules/score_rules.h"

namespace posenc::inline v0::hf {

// Members that the table does not state are empty, false or none.
struct ClassRules {
  std::string class_name, side, remote, remote_note, scheme, refused, refused_fix, no_transformer,
      not_a_rotation, score_note, pairing, interleave_key, output_order, axial, rotates_value,
      temperature, rotary_on, head, head_dim_is, types_padded, decoder, vision, input, input_if,
      softcap, input_at, input_note, input_tensor, input_tensor_columns, input_rows, input_keeps,
      is_causal, mask_note, bidirectional_key, input_beyond, input_odd, input_boxes,
      input_box_parts, input_coordinates, input_segments, score_also_alone;
  ByName<PartRules> parts;
  std::optional<Variants> variants;
  NameMap names, uses, keys;
  ByName<NameMap> types_from;
  std::vector<std::string> own_first, own_only, own_unless_null, nullable, computed, decoder_input,
      score_if, input_width, input_base, type_words;
  Json defaults = Json::object(), theta, fraction, rope_parameters, input_order;
  Overlay decoder_is, own_decoder;
  std::optional<Index> direction, input_offset, input_patches, input_cells;
  bool score_terms = false, bias_scaled = false, alibi_always = false, tail = false,
       partial = false, splits_by_table = false, bfloat16_once = false, unrotates_output = false,
       logit_factor = false, flat_only = false, strict_labels = false, labels_if_typed = false,
       head_null = false, head_null_fails = false, head_strict = false, heads_divide = false,
       heads_fill = false, typed = false, other_layer_types = false, indexed_full = false,
       bidirectional = false, key_cache_unknown = false, vision_windows = false,
       input_padding = false, input_any_padding = false, input_mask = false,
       softcap_after_terms = false, input_over_root = false, input_slots = false,
       input_square = false, input_x_first = false;
  std::optional<MropeRules> mrope;
  std::optional<RotaryIf> rotary_if;
  std::optional<RopeRules> rope;
  std::optional<LayerCountRules> layer_count;
  std::optional<LayerRules> layers;
  std::optional<WindowRules> window;
  std::optional<TokenMaskRules> token_mask;
  std::optional<QkNormRules> qk_norm;
  std::optional<ScoreRules> score, score_also;
  std::optional<ScaleRules> scale;
  std::optional<ChannelScaleRules> query_scale;
  std::optional<ConvolutionRules> convolution;
  std::optional<SinkRules> sinks;
  std::optional<InputAlso> input_also;
  std::optional<std::string> input_text;
  std::optional<InputScale> input_scale;
  std::optional<InputGrid> input_grid;
  // Whether q and k rotate, unless `rotary_if` says otherwise.
  bool rotates() const;
  static void describe(auto& s, auto&& v) {
    v("class", s.class_name, "name of the configuration class");
    v("side", s.side,
      "decoder: the rules of an encoder-decoder seen by its decoder (made by the reader)");
    v("remote", s.remote, "code of the model's own repository, and which");
    v("remote_note", s.remote_note, "what of it is not described");
    v("scheme", s.scheme,
      "what acts on q, k or the score: rope, alibi, t5, none ...; absent: a composite file");
    v("refused", s.refused, "positions of the class have no scheme here, and why");
    v("refused_fix", s.refused_fix, "what to do then");
    v("no_transformer", s.no_transformer, "no attention at all: convolutions ...");
    v("not_a_rotation", s.not_a_rotation, "why what it computes is no rotation");
    v("parts", s.parts, "parts of a composite file by their keys");
    v("variants", s.variants, "one of several ways, as a key or the release says");
    v("names", s.names, "the class's own names of common attributes");
    v("own_first", s.own_first, "attributes whose own name counts before the common one");
    v("own_only", s.own_only, "attributes that have the own name only");
    v("own_unless_null", s.own_unless_null, "attributes whose own name counts unless it is null");
    v("defaults", s.defaults, "what the class holds when the file says nothing");
    v("nullable", s.nullable, "attributes that may be null");
    v("computed", s.computed, "attributes that the class computes and refuses to be told");
    v("pairing", s.pairing, "which channels rotate together: half_split or interleaved");
    v("interleave_key", s.interleave_key, "switch whose false means half_split");
    v("direction", s.direction, "-1: clockwise");
    v("output_order", s.output_order, "even_then_odd: interleaved pairs are left half-split");
    v("axial", s.axial, "two streams of positions, each half of the head (ChatGLM-6B): blocks");
    v("tail", s.tail, "the last channels of the head rotate");
    v("theta", s.theta, "base of the frequencies");
    v("fraction", s.fraction, "rotated fraction of the head");
    v("partial", s.partial, "partial_rotary_factor is obeyed with every rope type");
    v("splits_by_table", s.splits_by_table, "an odd rotated width is split by its table");
    v("bfloat16_once", s.bfloat16_once, "products in float32, rounded once");
    v("rotates_value", s.rotates_value, "v rotates too: true, or the switch for it");
    v("unrotates_output", s.unrotates_output, "the output of attention rotates back");
    v("mrope", s.mrope, "rotary of several axes");
    v("logit_factor", s.logit_factor, "mscale_all_dim multiplies the logits");
    v("temperature", s.temperature,
      "query temperature: llama4, ministral, log_n, log_floor_by_order, log_floor_by_position");
    v("rotary_if", s.rotary_if, "rotary only where a key has a value");
    v("rotary_on", s.rotary_on,
      "layers with rotary: sliding, sliding_or_no_window, no_rope_layers");
    v("rope", s.rope, "how the dictionary of rotary parameters is read");
    v("rope_parameters", s.rope_parameters, "the dictionary that the class holds");
    v("flat_only", s.flat_only, "nested dictionaries are refused");
    v("strict_labels", s.strict_labels, "nested dictionaries take layer types only");
    v("labels_if_typed", s.labels_if_typed, "nested dictionaries only where layer_types is stated");
    v("keys", s.keys, "the class's own names at the top level for members of the dictionary");
    v("head", s.head,
      "sizes of a head: own (default), hidden_over_heads, latent, latent_by_kind, global, stated, "
      "zamba2");
    v("head_dim_is", s.head_dim_is,
      "what head_dim means for a latent head: rope, overwritten, table");
    v("head_null", s.head_null, "the class leaves head_dim null");
    v("head_null_fails", s.head_null_fails, "a null head_dim fails in the attention");
    v("head_strict", s.head_strict, "a null head_dim is refused");
    v("heads_divide", s.heads_divide, "the heads must divide the width");
    v("heads_fill", s.heads_fill, "heads times head_dim must be the width");
    v("layer_count", s.layer_count, "how many layers");
    v("layers", s.layers, "which kind each layer is");
    v("typed", s.typed, "layer_types is read");
    v("type_words", s.type_words, "words of layer_types that the class has; none: any");
    v("other_layer_types", s.other_layer_types, "layer_types holds names of the class's own");
    v("types_from", s.types_from, "a list of numbers, one a layer, and the type of each number");
    v("types_padded", s.types_padded,
      "layer_types may be longer: true, or the key that counts by how much");
    v("indexed_full", s.indexed_full, "layers that choose their keys see as full ones");
    v("window", s.window, "the window of sliding layers");
    v("token_mask", s.token_mask, "tokens that see each other whatever their order");
    v("bidirectional", s.bidirectional, "an encoder: keys to both sides");
    v("is_causal", s.is_causal,
      "what is_causal of the file does; absent: false shows a decoder the keys after the query; "
      "ignored: nothing, sdpa: nothing but with the eager kernel, fails: no file may state it");
    v("mask_note", s.mask_note, "what of the mask depends on the kernel and the call");
    v("bidirectional_key", s.bidirectional_key,
      "what use_bidirectional_attention does; absent: nothing; halved: half of the window to both "
      "sides, halved_and_one: and 1 more, whole: the window to both sides, sdpa: keys to both "
      "sides but with the eager kernel, "
      "ignored: nothing, and nobody needs to know");
    v("key_cache_unknown", s.key_cache_unknown, "what its cache holds is not described");
    v("decoder", s.decoder, "key that counts the layers of the decoder of the same file");
    v("decoder_input", s.decoder_input, "kind of the input of the decoder, and key of its rows");
    v("decoder_is", s.decoder_is, "members of the decoder that override these");
    v("own_decoder", s.own_decoder, "members of a decoder of images");
    v("vision", s.vision, "layout of a vision tower's axes");
    v("vision_windows", s.vision_windows, "its windows are those of Qwen2.5-VL");
    v("qk_norm", s.qk_norm, "how q and k are normalised");
    v("score_if", s.score_if, "switches of what acts in the score");
    v("score_terms", s.score_terms, "only with c2p or p2c in pos_att_type");
    v("score", s.score, "the definition of what acts in the score");
    v("score_also", s.score_also, "a second one, of the same scheme");
    v("score_also_alone", s.score_also_alone,
      "scheme of the second one, which acts alone where has_spatial_attention_bias is false");
    v("scale", s.scale, "what multiplies q.k, where it is not head_dim^-1/2");
    v("query_scale", s.query_scale, "what multiplies the channels of q, learned");
    v("convolution", s.convolution,
      "a causal convolution of k and v before their norm and rotation");
    v("softcap", s.softcap, "key of the soft cap of the scores");
    v("softcap_after_terms", s.softcap_after_terms, "it caps q.k with the score terms");
    v("sinks", s.sinks, "a learned score a head beside those of the keys");
    v("bias_scaled", s.bias_scaled, "the bias of the score is divided by sqrt(head_dim), with q.k");
    v("score_note", s.score_note, "what of the score is not described");
    v("alibi_always", s.alibi_always, "slopes of 8 and no other, whatever attn_config says");
    v("uses", s.uses,
      "keys of which no other member says it: read, refused (where true), one_kernel "
      "(FlashAttention's only), not_cached (DynamicCache does not forget by it), held_only");
    v("input", s.input, "what acts at the embedding: learned, sinusoidal ...");
    v("input_if", s.input_if, "only with this switch");
    v("input_also", s.input_also, "a second table");
    v("input_at", s.input_at, "where it acts, if not at the embedding");
    v("input_note", s.input_note, "what else acts that is not described");
    v("input_text", s.input_text, "fields of its scheme");
    v("input_tensor", s.input_tensor, "the name of its table among the weights");
    v("input_tensor_columns", s.input_tensor_columns, "and that of the columns");
    v("input_width", s.input_width, "keys of its width");
    v("input_rows", s.input_rows, "key of its rows");
    v("input_keeps", s.input_keeps, "key of the rows of a stored sinusoid");
    v("input_offset", s.input_offset, "rows before that of position 0");
    v("input_padding", s.input_padding, "positions count from the padding row");
    v("input_any_padding", s.input_any_padding, "any padding row");
    v("input_mask", s.input_mask, "positions count the tokens that the mask shows");
    v("input_beyond", s.input_beyond, "clamp: positions behind the table read its last row");
    v("input_odd", s.input_odd, "how an odd width of a sinusoid ends");
    v("input_base", s.input_base, "keys of the base: one, or of rows and columns");
    v("input_over_root", s.input_over_root, "the sinusoid is divided by the root of the width");
    v("input_scale", s.input_scale, "embeddings are multiplied by the root of the width");
    v("input_segments", s.input_segments,
      "rows are segments of a series of context_length: true, or the switch of a row before them");
    v("input_slots", s.input_slots, "positions are slots of the cache");
    v("input_boxes", s.input_boxes, "key of the rows of a table of boxes");
    v("input_box_parts", s.input_box_parts, "width and height: beside, clipped");
    v("input_patches", s.input_patches, "rows before the patches of an image");
    v("input_grid", s.input_grid, "how the rows of an image's table are counted");
    v("input_square", s.input_square, "images are square");
    v("input_coordinates", s.input_coordinates,
      "coordinates of a cell: from_one, counted, centred");
    v("input_cells", s.input_cells, "rows of each axis's table");
    v("input_order", s.input_order, "which axis is first");
    v("input_x_first", s.input_x_first, "columns come before rows");
  }
};

// Members that `more` names stand over those of the rules; null takes one away. Throws
// std::logic_error naming place and member: unknown, or of another form.
ClassRules with(ClassRules, const Json& more);

// The table, read once. Null when the type is not known.
const ClassRules* class_rules(std::string_view model_type);
using ClassTable = std::vector<std::pair<std::string, ClassRules>>;
// Every model type by its name.
const ClassTable& all_class_rules();
// The same of texts in the form of data/hugging_face/models: for tests. Throws std::logic_error as `with`, and if two
// entries have one model type.
ClassTable read_class_table(std::span<const std::string_view> texts);

// Every key that a class of the table holds, or reads for layers or rotary.
std::set<std::string> keys_of_classes();
// Whether the rules name a key of the file, in whatever member.
bool names_key(const ClassRules&, std::string_view key);

}  // namespace posenc::v0::hf
