// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "call_words.h"
#include "options.h"
#include "posenc/report/words.h"

namespace posenc::report {
namespace {

// K chooses an encoding at the input, NAME=F is an array that a scheme of the score reads.
void add_input_word(Words& w, PlotOptions& o) {
  Word& word = w.custom(
      "--input", "K|NAME=F",
      "K: which of several encodings at the input, counted from 0; NAME=F: an array that a scheme "
      "of the score\nreads in each call, repeatable (default: real ones are drawn)",
      [&o](const std::string& value) {
        if (value.find('=') != std::string::npos) {
          o.call.inputs.push_back(value);
          return std::string();
        }
        Index n = 0;
        std::string wrong = read_whole(value, 0, kMost, n);
        if (wrong.empty()) o.subject.input = n;
        return wrong;
      });
  word.is_repeatable = true;
  word.file();
}

void add_score_words(Words& w, PlotOptions& o) {
  w.whole("--heads", o.heads, 1, 65536, "N",
          "of bias, terms, decay and locality: number of attention heads (default: 8; required for "
          "bias);\nwith --head-dim also for the fields that a SCHEME lacks");
  w.whole("--head-dim", o.head_dim, 1, 65536, "D",
          "of the same: channels of a head (default: 64), or the head_dim that a SCHEME lacks");
  w.text("--q", o.call.q, "F",
         "of terms, decay and locality: queries as in attend, axes by --order (default: random "
         "numbers,\nas many as --context, else 128)")
      .file();
  w.text("--k", o.call.k, "F", "keys, likewise").file();
  w.text("--v", o.call.v, "F", "values, for schemes that read them (default: random)").file();
  w.text("--params", o.call.params, "F",
         ".safetensors file with the learned parameters of the schemes, by name")
      .file();
  w.texts("--with", o.call.with, "SCHEME",
          "another SCHEME whose terms are added to the score; repeatable");
  w.texts("--mask", o.call.masks, "MASK",
          "causal, window=L,R, prefix=N, chunk=N, sinks=N or a file of bytes; repeatable")
      .file();
  add_token_types(w, o.call);
}

void add_picture_words(Words& w, PlotOptions& o) {
  w.texts("--compare", o.compare, "SCHEME",
          "another MODEL or SCHEME in the same picture, for kinds that draw lines; repeatable");
  w.text("--title", o.title, "TEXT", "title of the picture (default: by the kind)");
  w.text("--language", o.language, "L", "language of the picture: en or zh").otherwise("en");
  w.output(Holds::picture,
           "F.svg, F.html (one self-contained file), F.png (needs rsvg-convert of librsvg2-bin) or "
           "- (default: plot.svg)");
}

}  // namespace

void add_plot_words(Words& w, PlotOptions& o) {
  w.subject(o.subject, Takes::model_or_scheme);
  w.text("--kind", o.kind, "KIND",
         "rows: heat map of cos and sin, or of an encoding at the input, learned tables too\n"
         "wavelengths: of every pair, against the context\n"
         "rotation: the angle of pairs at several positions\n"
         "decay: by distance: the score, the score bias, the inner product of sinusoids or the "
         "similarity of learned rows\n"
         "error: angle error by precision\n"
         "scaling: before and after\n"
         "bias: score terms that read neither query nor key, by distance\n"
         "terms: the parts of the score: products of content and position\n"
         "locality: attention by distance\n"
         "extend: a table in a .safetensors file before and after `posenc extend`\n"
         "default: wavelengths; rows if nothing rotates; decay for a SCHEME of the score");
  w.text("--positions", o.positions, "P",
         "of rows and rotation; distances of bias; tokens of terms, decay and locality: "
         "A:B[:STEP], a list or an .npy")
      .file();
  add_input_word(w, o);
  const std::size_t first = w.all().size();
  add_table_words(w, o.extend, false);
  w.text("--at", o.at, "N|YxX",
         "of extend: the position, or patch, that similarity refers to (default: the middle)");
  for (std::size_t i = first; i < w.all().size(); ++i) {
    Word& word = w.all()[i];
    if (word.names == "--grid" || word.names == "--order") continue;  // other kinds read them too
    word.store = [&o, store = std::move(word.store)](const std::string& value) {
      o.extend_given = true;
      return store(value);
    };
  }
  add_score_words(w, o);
  add_picture_words(w, o);
}

}  // namespace posenc::report
