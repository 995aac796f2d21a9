// SPDX-License-Identifier: Apache-2.0
// One function a verb. Each returns the exit code; errors are thrown and said once, in main.cpp.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "common.h"

namespace posenc::cli {

struct ListOptions {
  std::string name;  // one scheme or scaling; empty: all
  bool json = false, markdown = false;
};
int list(const ListOptions&);

struct ExplainOptions {
  SubjectOptions subject;
  bool json = false;
  bool notes = false;   // the doctor's: also those that hold for every model of a kind
  bool strict = false;  // the doctor's: a warning is a negative answer too
};
int explain(const ExplainOptions&);
int doctor_verb(const ExplainOptions&);

struct TableOptions {
  SubjectOptions subject;
  std::string positions, what, layout, precision, dtype;  // "": the default
  std::string grid;                                       // HxW: the positions count its cells
  Index heads = 0;                                        // of --what bias
  Output output;
  bool json = false;
};
int table(TableOptions);
// Whether the scheme enters at the input, and its rows alone, [batch * tokens, width]; what it
// learns comes from the file of --arrays, by name, or is drawn as it starts with --start.
bool is_input_scheme(const Encoding&);
Array input_rows(const Encoding&, const PositionList&, DType, const SubjectOptions&);
// Positions for which the tables of such a scheme have rows, by what it lowers to; none: it has no
// table, or a row for every position. axes: those that it reads.
struct TablePositions {
  std::optional<Index> count;
  Index axes = 1;
};
TablePositions table_positions(const Encoding&, const SubjectOptions&);
// Axes of positions that the terms read.
Index position_axes(const LoweredInput&);
// Coordinates of the cells that a list counts, row by row, of a grid of HxW.
PositionList cells_of(const std::string& grid, const PositionList&);
// What acts at the input of the model or of --tower; --input chooses where there are several.
const std::vector<InputEncoding>& inputs_of(const ModelSpec&, const SubjectOptions&);
const InputEncoding& chosen_input(const ModelSpec&, const SubjectOptions&);
// Its rows, learned ones from the weights beside the model's file. A list counts the rows of the
// model's own table of an image, or the cells of `grid` where the grid is that of each image.
Array model_rows(const ModelSpec&, const InputEncoding&, const PositionList&, DType,
                 const std::string& grid = "");

struct ApplyOptions {
  SubjectOptions subject;
  std::string q, k, bias, positions, order, precision = "exact", sense = "forward";
  bool temperature = false;
  Output output;
  bool json = false;
};
int apply_verb(const ApplyOptions&);

struct AttendOptions {
  SubjectOptions subject;
  std::vector<std::string> with;  // further SCHEMEs that act in the score
  std::string q, k, v, order, params, positions, key_positions, offset;
  std::string grid;                        // HxW of the tokens
  std::vector<std::string> inputs, masks;  // NAME=F; words or files
  std::string cu_seqlens, key_cu_seqlens, documents, token_types, gradient;
  std::string query_order, key_order, chunk_origin, block_table, key_length;  // files or a number
  std::optional<double> scale;
  std::optional<double> softcap;
  bool scores = false, terms = false, probabilities = false, locality = false, json = false;
  Output output;
};
int attend_verb(const AttendOptions&);

struct BiasOptions {
  SubjectOptions subject;
  std::string params, positions, key_positions;
  std::vector<std::string> inputs;
  Index heads = 0, head_dim = 64;
  bool by_distance = false, json = false;
  Output output;
};
int bias_verb(const BiasOptions&);

struct EmitOptions {
  std::string kind;    // onnx
  AttendOptions call;  // its subject, positions, masks, offset, scale and learned arrays
  Index heads = 0, head_dim = 0;
  std::string dtype, output;  // dtype "": f32
  bool json = false;
};
int emit_verb(const EmitOptions&);

struct ExtendOptions {
  std::string weights, tensor, to, how, grid, order, border, scale, rows, output;
  Index prefix = 0, suffix = 0;
  bool align_corners = false, antialias = false, json = false;
  std::optional<double> a, alpha;
  double offset = 0;
};
int extend_verb(const ExtendOptions&);

struct PlotOptions {
  SubjectOptions subject;
  std::string kind, positions;       // kind "": wavelengths where something turns, else rows
  std::string output, format;        // .svg, .html or .png; "": plot.svg
  std::string language = "en";       // of the words
  std::vector<std::string> compare;  // further MODELs or SCHEMEs in the same picture
  std::string title;                 // "": by the kind
  Index heads = 0;                   // of the attention; 0: not given
  Index head_dim = 0;                // of q and k that are drawn
  AttendOptions call;                // of terms, decay and locality: what attend reads
  ExtendOptions extend;              // of kind extend: the table's options; `grid` of rows as well
  std::string at;                    // of kind extend: what the similarity is to
  bool extend_given = false;         // one of those was on the command line
  bool json = false;
};
int plot(PlotOptions);

struct SelftestOptions {
  std::vector<std::string> suites, onnx;
  std::string map, filter;
  bool json = false;
};
// Takes the command line as given: posenc hands it to posenc-checks, where the verb is.
int selftest(const SelftestOptions&, char** argv);

struct BenchOptions {
  std::string filter;
  bool json = false, quick = false;
};
int bench(const BenchOptions&, char** argv);

}  // namespace posenc::cli
