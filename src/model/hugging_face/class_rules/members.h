// SPDX-License-Identifier: Apache-2.0
// Members of ClassRules that have members of their own.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/contains.h"
#include "posenc/core/dtype.h"
#include "posenc/io/json.h"

namespace posenc::inline v0::hf {

// Members by name, in the order of the table.
template <class T>
struct ByName {
  std::vector<std::pair<std::string, T>> pairs;
  bool empty() const { return pairs.empty(); }
  // Null when there is none.
  const T* find(std::string_view name) const {
    for (const auto& [key, value] : pairs)
      if (key == name) return &value;
    return nullptr;
  }
  void set(std::string_view name, T value) {
    for (auto& [key, old] : pairs)
      if (key == name) return void(old = std::move(value));
    pairs.emplace_back(name, std::move(value));
  }
  std::vector<std::string_view> names() const {
    std::vector<std::string_view> out;
    for (const auto& [key, value] : pairs) out.push_back(key);
    return out;
  }
};
using NameMap = ByName<std::string>;
// Members of ClassRules that come to stand over a class's where a file says so, checked on reading
// the table.
struct Overlay : Json {};

// A part of a composite file.
struct PartRules {
  std::string type, instead, old_key, replaces_unless;
  bool by_model_type = false, needs_model_type = false, merged = false, main = false,
       optional = false;
  Json absent, flat, flat_held;
  NameMap renamed;
  Overlay is;
  std::vector<std::string> passes;
  static void describe(auto& s, auto&& v) {
    v("type", s.type, "model type of the part");
    v("by_model_type", s.by_model_type, "the part's own model_type counts");
    v("needs_model_type", s.needs_model_type, "and must be there");
    v("absent", s.absent, "what it holds where the file has none");
    v("merged", s.merged, "what `absent` holds fills a stated part too");
    v("flat", s.flat, "keys of it are at the top level: true for all, or their names");
    v("flat_held", s.flat_held, "what it holds then");
    v("instead", s.instead, "an object that overrides it (text_config_dict)");
    v("main", s.main, "read as the text where there is none");
    v("old_key", s.old_key, "older name of the part");
    v("optional", s.optional, "the model has none where the file has none");
    v("renamed", s.renamed, "model types renamed on loading");
    v("replaces_unless", s.replaces_unless, "replaces the whole, unless this is true");
    v("is", s.is, "members that override those of its class here");
    v("passes", s.passes, "keys at the top level that count for the part too");
  }
};

// Embeddings are multiplied by the root of the width.
struct InputScale {
  std::string key;
  bool on = false, always = false, ignored = false;
  std::optional<bool> published;
  static void describe(auto& s, auto&& v) {
    v("key", s.key, "the switch; default scale_embedding");
    v("default", s.on, "what it is where the file has none");
    v("always", s.always, "without a switch");
    v("ignored", s.ignored, "the class holds the switch and does not look at it");
    v("published", s.published, "whether published files have it on");
  }
};

// A second table at the input.
struct InputAlso {
  std::string rows, by, tensor, sinusoid;
  static void describe(auto& s, auto&& v) {
    v("rows", s.rows, "key of its rows");
    v("by", s.by, "what counts them (frame)");
    v("tensor", s.tensor, "its name among the weights");
    v("sinusoid", s.sinusoid, "fields of a sinusoid that replaces it");
  }
};

// How the rows of an image's table are counted.
struct InputGrid {
  std::string image, patch, cells, counted, tubelets, frames, tubelet, more;
  std::vector<std::string> sides;
  std::optional<Index> side;
  bool overlap = false, behind = false;
  static void describe(auto& s, auto&& v) {
    v("image", s.image, "key of the size of the image; default image_size");
    v("patch", s.patch, "key of the size of a patch; default patch_size");
    v("cells", s.cells, "key of the number of cells of a square");
    v("sides", s.sides, "keys of the sides of a square");
    v("counted", s.counted, "key of the number of patches");
    v("side", s.side, "size of the image where there is neither");
    v("overlap", s.overlap, "patches of a spectrogram, which overlap by their strides");
    v("tubelets", s.tubelets, "tubelet_size; true: rows for every frame");
    v("frames", s.frames, "key of the frames");
    v("tubelet", s.tubelet, "key of the frames of a tubelet");
    v("more", s.more, "key of further rows");
    v("behind", s.behind, "the rows before the patches follow them");
  }
};

// A release, told by the keys that its file states.
struct VariantCase {
  std::vector<std::string> states, lacks;
  std::string code, as;
  Json equals;
  Overlay is;
  static void describe(auto& s, auto&& v) {
    v("states", s.states, "one of these is stated");
    v("lacks", s.lacks, "none of these is stated");
    v("equals", s.equals, "values of keys");
    v("code", s.code, "a part of the name of the model's code in auto_map");
    v("as", s.as, "another type, whose members count");
    v("is", s.is, "members that override the class's");
  }
};

// Classes that place positions in one of several ways.
struct Variants {
  std::string key, why, fix;
  Overlay otherwise;
  ByName<Overlay> of;
  std::vector<VariantCase> cases;
  static void describe(auto& s, auto&& v) {
    v("key", s.key, "the key that says which");
    v("of", s.of, "members for each of its values");
    v("otherwise", s.otherwise, "members for any other text");
    v("cases", s.cases,
      "releases, instead of a key: the first that fits; one without conditions fits any file");
    v("why", s.why, "why a file of no release is refused");
    v("fix", s.fix, "what to do then");
  }
};

// Which kind each layer is, where the file does not say: `rule` names the form, the rest are its parts.
struct LayerRules {
  std::string rule, key, hit, other, phase, force_last;
  std::optional<Index> n;
  bool also_first = false, not_first = false, one_at_least = false, zero_without_window = false,
       always = false, empty_is_none = false;
  NameMap names;
  Json held;
  static void describe(auto& s, auto&& v) {
    v("rule", s.rule,
      "every, windows_from, windows_until, no_rope_layers, period, listed, letters, coded, blocks, "
      "cycle, repeated, all, or a class of its own (flint, lfm3, deepseek_v4, dots3, inkling, "
      "kimi_linear, zamba, zamba2, sliding_if_window)");
    v("key", s.key, "the key of the file that the form reads");
    v("n", s.n, "every n-th layer is `hit` (every)");
    v("hit", s.hit,
      "type of the layers that the form picks (all: every one; no_rope_layers: with rotary)");
    v("other", s.other, "type of the others; sliding_if_used: by use_sliding_window");
    v("phase", s.phase, "which of n layers is hit: last (default), first, from_end");
    v("also_first", s.also_first, "layer 0 is hit too");
    v("not_first", s.not_first, "layer 0 is never hit");
    v("one_at_least", s.one_at_least, "with fewer than n layers the last is hit");
    v("zero_without_window", s.zero_without_window,
      "the class divides by zero where sliding_window is null");
    v("force_last", s.force_last, "the last layer is full: always, or unless_stated");
    v("empty_is_none", s.empty_is_none, "an empty no_rope_layers counts as none (no_rope_layers)");
    v("always", s.always,
      "also beside layer_types, and numbers beyond the layers hit none (listed)");
    v("names", s.names, "type of each code, letter or name (coded, letters, cycle, repeated)");
    v("default", s.held,
      "what counts for a file that says nothing (letters, cycle, repeated, listed)");
  }
};

// How many layers, where no one key says it.
struct LayerCountRules {
  std::optional<Index> fixed;
  std::string sum, key;
  std::vector<std::string> keys;
  bool cycles = false;
  std::optional<Index> shrinking;
  Json held;
  static void describe(auto& s, auto&& v) {
    v("fixed", s.fixed, "always as many");
    v("sum", s.sum, "a list whose sum counts");
    v("shrinking", s.shrinking,
      "so many of the first stages end with one more layer, whose queries are every second row and "
      "column (LeViT)");
    v("keys", s.keys, "stacks that are counted one by one");
    v("key", s.key, "counts two layers each (LongCat-Flash)");
    v("cycles", s.cycles, "H_cycles (L_cycles + 1) runs of the stack (HRM)");
    v("default", s.held, "what counts for a file that says nothing");
  }
};

// Where the window of sliding layers comes from.
struct WindowRules {
  std::string key, on, switch_key, first, listed, set_by, later;
  std::optional<Index> divide, every_second;
  bool both = false, halves = false, by_layer = false;
  static void describe(auto& s, auto&& v) {
    v("key", s.key, "the key that holds it");
    v("on", s.on, "all: every layer slides");
    v("switch", s.switch_key, "without this switch there is none");
    v("first", s.first, "a key that counts before it, one less than the window (MiMo-V2-Flash)");
    v("listed", s.listed,
      "a list of windows, one a layer, of which the first above 0 counts (UltraBERT)");
    v("set_by", s.set_by, "keys to each side, over the key (ModernBERT)");
    v("later", s.later, "key of how many keys after the query are seen (Gemma 3n's audio)");
    v("divide", s.divide, "the window is divided by it");
    v("both", s.both, "keys to both sides");
    v("by_layer", s.by_layer, "an even number, or a list of them, one a layer (Longformer)");
    v("halves", s.halves, "a window of n is (n + 1) // 2 - 1 keys before and n // 2 after");
    v("every_second", s.every_second, "window of every second sliding layer (NeoMME)");
  }
};

// Tokens that see each other whatever their order, told by an input of the model.
struct TokenMaskRules {
  std::string tokens, input, on;
  std::vector<Index> types;
  bool runs = false, within_window = false;
  Json needs;
  static void describe(auto& s, auto&& v) {
    v("tokens", s.tokens, "what they are: images, prefix");
    v("input", s.input, "the input of the model that tells them");
    v("types", s.types, "values of the input whose tokens see each other");
    v("runs", s.runs, "each run of such tokens by itself; absent: all of them");
    v("within_window", s.within_window, "no key that the window hides behind the query is seen");
    v("on", s.on, "sliding: in layers with a window only");
    v("needs", s.needs, "values of keys without which there is none");
  }
};

// rope_scaling as code of a model's own repository reads it.
struct OwnScalingRules {
  std::string key, factor, base;
  std::vector<std::string> type_keys;
  NameMap types;
  ByName<Json> reads;
  ByName<std::vector<std::string>> outside;
  Json factor_default;
  std::optional<Index> fields;
  bool pair = false;
  static void describe(auto& s, auto&& v) {
    v("key", s.key, "the key");
    v("type_keys", s.type_keys, "its members that name the type; default: type");
    v("types", s.types, "the type here of each of its names");
    v("reads", s.reads, "keys read with each type, and their defaults");
    v("outside", s.outside, "keys beside the dictionary");
    v("fields", s.fields, "how many members the dictionary must have");
    v("pair", s.pair, "exactly type and factor");
    v("factor_default", s.factor_default, "factor where the dictionary has none");
    v("factor", s.factor, "its member that holds the factor; default: factor");
    v("base", s.base, "its member that holds the base");
  }
};

// A layer type of a class that keeps one base a type.
struct TypeRules {
  std::string key;
  Json held, fraction;
  static void describe(auto& s, auto&& v) {
    v("key", s.key, "key of its theta; default: rope_theta, where the file has it");
    v("default", s.held, "its theta where the file has none");
    v("fraction", s.fraction, "its rotated fraction where the file has none");
  }
};

// How the dictionary of rotary parameters is read.
struct RopeRules {
  std::string rule, theta_list, theta_zero, fraction, width, partial_from, scaled_layers, why, fix;
  std::string steps, steps_length, times, times_name, times_why;
  std::vector<std::string> only, fills, scaling_to, times_divides, times_multiplies;
  NameMap rename, rename_late, aliases;
  ByName<TypeRules> thetas;
  Json partial_forced;
  bool thetas_by_layer = false, partial_is_mla = false, fills_from_class = false, fixed = false,
       fixed_original = false, ignores_scaling = false, table_at_once = false, mscales = false,
       alpha = false, step = false;
  std::optional<OwnScalingRules> scaling;
  static void describe(auto& s, auto&& v) {
    v("rule", s.rule,
      "flat, by_layer_type, own_keys, fixed_base, refused, or the name of a function");
    v("only", s.only, "rope types that the class takes");
    v("rename", s.rename, "types renamed on loading");
    v("rename_late", s.rename_late, "types renamed after the checks of the dictionary");
    v("aliases", s.aliases, "older names of members");
    v("thetas", s.thetas, "theta of each layer type");
    v("theta_list", s.theta_list, "key of a list, one theta a layer");
    v("theta_zero", s.theta_zero, "from_end: every fourth layer from the end has none");
    v("thetas_by_layer", s.thetas_by_layer, "lists of thetas by layer are read");
    v("fraction", s.fraction, "key of the rotated fraction");
    v("width", s.width, "key of the rotated width");
    v("partial_forced", s.partial_forced, "the rotated fraction, whatever the file says");
    v("partial_from", s.partial_from, "key over head_dim makes the fraction");
    v("partial_is_mla", s.partial_is_mla,
      "the fraction must come to the rotated part of a latent head");
    v("fills", s.fills, "members that the class fills into nested dictionaries");
    v("fills_from_class", s.fills_from_class, "with its own values, not the file's");
    v("fixed", s.fixed, "the base is in the code");
    v("fixed_original", s.fixed_original, "the original length is the class's");
    v("ignores_scaling", s.ignores_scaling, "rope_scaling is not read");
    v("scaling", s.scaling, "rope_scaling in the words of its own code");
    v("scaling_to", s.scaling_to, "layer types that the scaling acts on");
    v("scaled_layers", s.scaled_layers, "key that lists the layers with the scaling");
    v("steps", s.steps, "switch of stepwise NTK");
    v("steps_length", s.steps_length, "key of its trained length");
    v("times", s.times, "key of a ratio that multiplies the base or divides positions");
    v("times_name", s.times_name, "key of the name of the release, which says which");
    v("times_divides", s.times_divides, "words of names that divide");
    v("times_multiplies", s.times_multiplies, "words of names that multiply");
    v("times_why", s.times_why, "why a file of another name is refused");
    v("table_at_once", s.table_at_once, "the table is made for the longest text at once");
    v("mscales", s.mscales, "short_mscale and long_mscale are gains");
    v("alpha", s.alpha, "dynamic NTK with alpha is static (HunYuan)");
    v("step", s.step, "published files state a Llama-3 ramp of no width (Llama-4-Scout)");
    v("why", s.why, "why it is refused");
    v("fix", s.fix, "what to do then");
  }
};

// Rotary of several axes.
struct MropeRules {
  std::string layout;
  Json sections;
  static void describe(auto& s, auto&& v) {
    v("layout", s.layout,
      "how the pairs of a head go to the axes: chunked, interleaved, ernie, openpangu ...");
    v("sections", s.sections,
      "pairs of each axis, where the file has none; null: half of the pairs each");
  }
};

// Rotary only where a key has a value.
struct RotaryIf {
  std::string key, otherwise, other_equals;
  Json equals;
  static void describe(auto& s, auto&& v) {
    v("key", s.key, "the key");
    v("equals", s.equals, "the value");
    v("otherwise", s.otherwise, "what acts with another value");
    v("other_equals", s.other_equals, "then only with this value; a third one is none");
  }
};

}  // namespace posenc::v0::hf
