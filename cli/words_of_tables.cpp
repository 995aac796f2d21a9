// SPDX-License-Identifier: Apache-2.0
// The words of extend and plot, which share those of a table.
#include "numbers.h"
#include "words.h"

namespace posenc::cli {
namespace {

// What names a table in a file and its other size. `needed`: of extend; plot asks by --kind.
std::vector<CLI::Option*> add_table_options(CLI::App* x, ExtendOptions& o, bool needed) {
  std::vector<CLI::Option*> all;
  const auto add = [&](auto&& option, const char* type, bool required = false) {
    option->required(required);
    if (*type) option->type_name(type);
    all.push_back(option);
    return option;
  };
  add(x->add_option("--tensor", o.tensor, "the table's name in the file"), "NAME", needed);
  add(x->add_option("--to", o.to,
                    "rows wanted: N of a line, kept rows included; HxW of a grid, without them"),
      "N|HxW", needed);
  add(x->add_option(
          "--how", o.how,
          "linear, stretch, tile, hierarchical (lines); bilinear, bicubic, geometric (grids)"),
      "HOW", needed);
  add(x->add_option("--prefix", o.prefix,
                    "rows kept in front: class and register tokens, offset rows"),
      "N")
      ->transform(whole_number(0));
  add(x->add_option("--suffix", o.suffix, "rows kept at the end"), "N")->transform(whole_number(0));
  add(x->add_option("--grid", o.grid,
                    needed ? "the table's own grid (default: the square of its rows)"
                           : "of extend: the table's own grid; of rows: an image whose cells the "
                             "positions count, row by row"),
      "HxW");
  add(x->add_option("--rows", o.rows,
                    "what the rows are: positions, offsets (an odd number on each axis) or buckets "
                    "(a fixed number)\n(default: by the tensor's name)"),
      "KIND");
  add(x->add_option("--order", o.order,
                    "its axes: t rows, y x of a grid, c channels, 1 of size one\n"
                    "(default: tc, 1tc or 1yxc by its shape)"),
      "ORDER");
  add(x->add_flag("--align-corners", o.align_corners, "ends on ends"), "");
  add(x->add_flag("--antialias", o.antialias, "as timm and JAX: a = -0.5, border renormalised"),
      "");
  add(x->add_option("--keys", o.a, "bicubic's a (default: -0.75, with --antialias -0.5)"), "A")
      ->transform(real_number());
  add(x->add_option("--border", o.border,
                    "repeat or renormalise (default: by --antialias); of stretch repeat (default) "
                    "or extrapolate"),
      "B");
  add(x->add_option("--offset", o.offset,
                    "added to the new size where the factor is made: DINO 0.1"),
      "X")
      ->transform(real_number());
  add(x->add_option("--scale", o.scale, "factor that sets the sampling points instead of the size"),
      "F|FyxFx");
  add(x->add_option("--alpha", o.alpha, "hierarchical (default: 0.4)"), "A")
      ->transform(real_number());
  return all;
}

void add_extend_options(CLI::App* x, ExtendOptions& o) {
  x->add_option("WEIGHTS", o.weights, "a .safetensors file")->type_name("")->required();
  add_table_options(x, o, true);
  x->add_option("-o,--output", o.output, "the new file, written whole or not at all")
      ->type_name("F")
      ->required();
  add_json(x, o.json);
}

}  // namespace

namespace {

// K chooses an encoding at the input, NAME=F is an array that a scheme of the score reads.
void add_input_words(CLI::App* p, PlotOptions& o) {
  p->add_option_function<std::vector<std::string>>(
       "--input",
       [&o](const std::vector<std::string>& words) {
         for (const std::string& word : words) {
           if (word.find('=') != std::string::npos) {
             o.call.inputs.push_back(word);
             continue;
           }
           std::string digits = word;
           if (const std::string wrong = whole_number(0)(digits); !wrong.empty())
             throw CLI::ValidationError("--input", wrong);
           o.subject.input = std::stoll(digits);
         }
       },
       "K: which of several encodings at the input, counted from 0; NAME=F: an array that a scheme "
       "of the score reads of each call, repeatable (default: real ones are drawn)")
      ->type_name("K|NAME=F")
      ->allow_extra_args(false);
}

void add_call_words(CLI::App* p, PlotOptions& o) {
  p->add_option("--heads", o.heads,
                "of bias, terms, decay and locality: heads of the attention (default: 8; bias: "
                "must be given); with --head-dim for the fields that a SCHEME lacks")
      ->type_name("N")
      ->transform(whole_number(1, 65536));
  p->add_option(
       "--head-dim", o.head_dim,
       "of the same: channels of a head (default: 64), or the head_dim that a SCHEME lacks")
      ->type_name("D")
      ->transform(whole_number(1, 65536));
  p->add_option(
       "--q", o.call.q,
       "of terms, decay and locality: queries, as attend reads them, axes by --order (default: "
       "random numbers, as many as --context, 128)")
      ->type_name("F");
  p->add_option("--k", o.call.k, "keys, likewise")->type_name("F");
  p->add_option("--v", o.call.v, "values, where a scheme reads them (default: random)")
      ->type_name("F");
  p->add_option("--params", o.call.params,
                "what the schemes learn: .safetensors with arrays of their names")
      ->type_name("F");
  p->add_option("--with", o.call.with, "a further SCHEME that acts in the score; repeatable")
      ->type_name("SCHEME")
      ->allow_extra_args(false);
  p->add_option("--mask", o.call.masks,
                "causal, window=L,R, prefix=N, chunk=N, sinks=N or a file of bytes; repeatable")
      ->type_name("MASK")
      ->allow_extra_args(false);
  add_token_types(p, o.call);
}

// The subject, the kind and its positions.
void add_kind_words(CLI::App* p, PlotOptions& o) {
  add_subject(p, o.subject, Takes::model_or_scheme);
  p->add_option(
       "--kind", o.kind,
       "rows (heat map of cos and sin, or of what acts at the input, learned tables too), "
       "wavelengths (against the context), rotation (the angle of pairs at several positions), "
       "decay (by distance: score, what is added to it, inner "
       "product of sinusoids or similarity of learned rows), error (angle error by precision), "
       "scaling (before and after), bias (what reads neither query nor key, by distance), terms "
       "(what the score is made of: products of content and position), locality (attention by "
       "distance), extend (a table in a .safetensors file before and after `posenc extend`); "
       "default: wavelengths, rows where there are none, decay of a SCHEME of the score")
      ->type_name("KIND");
  p->add_option("--positions", o.positions,
                "of rows and rotation, distances of bias, tokens of terms, decay and locality: "
                "A:B[:STEP], a list or an .npy")
      ->type_name("P");
}

// How the picture looks and where it goes.
void add_picture_words(CLI::App* p, PlotOptions& o) {
  p->add_option(
       "--compare", o.compare,
       "a further MODEL or SCHEME in the same picture, of kinds that draw lines; repeatable")
      ->type_name("SCHEME")
      ->allow_extra_args(false);
  p->add_option("--title", o.title, "of the picture, in place of the kind's")->type_name("TEXT");
  p->add_option("--language", o.language, "of the words in the picture: en or zh")
      ->type_name("L")
      ->capture_default_str();
  p->add_option(
       "-o,--output", o.output,
       "F.svg, F.html (one file, self-contained), F.png (by rsvg-convert of librsvg2-bin) or "
       "- (default: plot.svg)")
      ->type_name("F");
  p->add_option("--format", o.format, "for -o -: svg, html or png")->type_name("FORMAT");
}

}  // namespace

void add_plot(CLI::App& app, PlotOptions& o, std::function<int()>& chosen) {
  auto* p = app.add_subcommand(
      "plot",
      "pictures: rows, wavelengths, rotation, decay, error, scaling, bias, terms, "
      "locality, a table before and "
      "after");
  add_kind_words(p, o);
  add_input_words(p, o);
  std::vector<CLI::Option*> of_tables = add_table_options(p, o.extend, false);
  of_tables.push_back(p->add_option("--at", o.at,
                                    "of extend: the position, or patch, that similarity is to "
                                    "(default: the middle)")
                          ->type_name("N|YxX"));
  add_call_words(p, o);
  add_picture_words(p, o);
  add_json(p, o.json);
  p->footer(
      "Examples:\n  posenc plot config.json\n"
      "  posenc plot models/gemma --title \"Local and global layers\" -o wavelengths.svg\n"
      "  posenc plot \"rope head_dim=64 pairing=interleaved\" --kind rows --positions 0:256 -o "
      "rows.html\n"
      "  posenc plot \"rope head_dim=8 pairing=half_split\" --kind rotation -o dials.png\n"
      "  posenc plot alibi --compare \"t5 bidirectional=false\" --start 1 --kind bias --heads 8 -o "
      "both.svg\n"
      "  posenc plot \"sinusoidal width=128\" --kind decay -o inner_products.svg\n"
      "  posenc plot models/bert --kind decay -o learned.svg\n"
      "  posenc plot models/detr --grid 12x16 -o cells.svg\n"
      "  posenc plot alibi --kind locality --mask causal -o local.svg\n"
      "  posenc plot \"deberta max_relative_positions=64 position_buckets=0\" --start 1 --kind "
      "terms "
      "-o terms.svg\n"
      "  posenc plot bert.safetensors --kind extend --tensor "
      "bert.embeddings.position_embeddings.weight \\\n"
      "    --to 1024 --how linear -o longer.svg");
  p->callback([&o, &chosen, of_tables] {
    for (const CLI::Option* x : of_tables)  // --grid and --order have a meaning for others too
      o.extend_given |= x->count() > 0 && x->get_name() != "--grid" && x->get_name() != "--order";
    chosen = [&o] { return plot(o); };
  });
}

void add_extend_verb(CLI::App& app, ExtendOptions& o, std::function<int()>& chosen) {
  auto* x = app.add_subcommand("extend", "a learned table of positions in a file at another size");
  add_extend_options(x, o);
  x->footer(
      "Everything else in the file is copied bit for bit.\n"
      "Examples:\n"
      "  posenc extend bert.safetensors --tensor bert.embeddings.position_embeddings.weight \\\n"
      "    --to 2048 --how hierarchical -o longer.safetensors\n"
      "  posenc extend roberta.safetensors --tensor roberta.embeddings.position_embeddings.weight "
      "\\\n"
      "    --prefix 2 --to 1026 --how linear -o longer.safetensors\n"
      "  posenc extend vit.safetensors --tensor vit.embeddings.position_embeddings --prefix 1 \\\n"
      "    --to 24x24 --how bicubic -o larger.safetensors\n"
      "  posenc extend sam.safetensors --tensor image_encoder.pos_embed --to 32x48 --how bilinear "
      "-o "
      "o.safetensors");
  x->callback([&o, &chosen] { chosen = [&o] { return extend_verb(o); }; });
}

}  // namespace posenc::cli
