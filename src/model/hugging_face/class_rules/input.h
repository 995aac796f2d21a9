// SPDX-License-Identifier: Apache-2.0
// What the table of model types says of parts, of the input and of releases: members of ClassRules.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/hugging_face/class_rules/names.h"
#include "posenc/io/json.h"

namespace posenc::hf {

// A part of a composite file.
struct PartRules {
  std::string type;
  bool by_model_type = false;
  bool needs_model_type = false;
  Json absent;
  bool merged = false;
  Json flat;
  Json flat_held;
  std::string instead;
  bool main = false;
  std::string old_key;
  bool optional = false;
  NameMap renamed;
  std::string replaces_unless;
  template <class S, class V>
  static void describe(S& s, V&& v) {
    v("type", s.type, "model type of the part");
    v("by_model_type", s.by_model_type, "the part's own model_type counts");
    v("needs_model_type", s.needs_model_type, "and must stand there");
    v("absent", s.absent, "what it holds where the file has none");
    v("merged", s.merged, "what `absent` holds fills a stated part too");
    v("flat", s.flat, "keys of it stand at the top level: true for all, or their names");
    v("flat_held", s.flat_held, "what it holds then");
    v("instead", s.instead, "an object that overrules it (text_config_dict)");
    v("main", s.main, "read as the text where there is none");
    v("old_key", s.old_key, "older name of the part");
    v("optional", s.optional, "the model has none where the file has none");
    v("renamed", s.renamed, "model types renamed on loading");
    v("replaces_unless", s.replaces_unless,
      "stands in the place of the whole, unless this is true");
  }
};

// A key that lists what acts in the score.
struct ScoreTerms {
  std::string key;
  std::vector<std::string> any;
  template <class S, class V>
  static void describe(S& s, V&& v) {
    v("key", s.key, "the key");
    v("any", s.any, "one of these makes a term");
  }
};

// Embeddings are multiplied by the root of the width.
struct InputScale {
  std::string key;
  bool on = false;
  bool always = false;
  bool ignored = false;
  std::optional<bool> published;
  template <class S, class V>
  static void describe(S& s, V&& v) {
    v("key", s.key, "the switch; default scale_embedding");
    v("default", s.on, "what it is where the file has none");
    v("always", s.always, "without a switch");
    v("ignored", s.ignored, "the class holds the switch and does not look at it");
    v("published", s.published, "whether published files have it on");
  }
};

// Rows that are counted by segments.
struct InputSegments {
  std::string length;
  std::string before;
  template <class S, class V>
  static void describe(S& s, V&& v) {
    v("length", s.length, "key of the length of a segment");
    v("before", s.before, "switch of a row before them");
  }
};

// Another encoding at the input, where a key has a value.
struct InputInstead {
  std::string key;
  Json equals;
  std::string kind;
  template <class S, class V>
  static void describe(S& s, V&& v) {
    v("key", s.key, "the key");
    v("equals", s.equals, "the value");
    v("kind", s.kind, "what acts then");
  }
};

// A second table at the input.
struct InputAlso {
  std::string rows;
  std::string by;
  std::string tensor;
  std::string sinusoid;
  Json unless;
  template <class S, class V>
  static void describe(S& s, V&& v) {
    v("rows", s.rows, "key of its rows");
    v("by", s.by, "what counts them (frame)");
    v("tensor", s.tensor, "where it stands among the weights");
    v("sinusoid", s.sinusoid, "fields of a sinusoid in its place");
    v("unless", s.unless, "not where this key has this value");
  }
};

// How the rows of an image's table are counted.
struct InputGrid {
  std::string image;
  std::string patch;
  std::string cells;
  std::vector<std::string> sides;
  std::string counted;
  std::optional<Index> side;
  bool overlap = false;
  std::string tubelets;
  std::string frames;
  std::string tubelet;
  std::string more;
  bool behind = false;
  template <class S, class V>
  static void describe(S& s, V&& v) {
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
    v("behind", s.behind, "the rows before the patches stand behind them");
  }
};

// A release, told by the keys that its file states.
struct VariantCase {
  std::vector<std::string> states;
  std::vector<std::string> lacks;
  Json equals;
  Json is;
  template <class S, class V>
  static void describe(S& s, V&& v) {
    v("states", s.states, "one of these is stated");
    v("lacks", s.lacks, "none of these is stated");
    v("equals", s.equals, "values of keys");
    v("is", s.is, "members that stand over the class's");
  }
};

// Classes that place positions in one of several ways.
struct Variants {
  std::string key;
  Json of;
  Json otherwise;
  std::vector<VariantCase> cases;
  std::string why;
  std::string mend;
  template <class S, class V>
  static void describe(S& s, V&& v) {
    v("key", s.key, "the key that says which");
    v("of", s.of, "members for each of its values");
    v("otherwise", s.otherwise, "members for any other text");
    v("cases", s.cases, "releases, instead of a key");
    v("why", s.why, "why a file of no release is refused");
    v("mend", s.mend, "what to do then");
  }
};

}  // namespace posenc::hf
