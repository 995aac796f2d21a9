// SPDX-License-Identifier: Apache-2.0
// What the verbs share: the subject (a model's file or a SCHEME), positions, outputs, exit codes.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "posenc/io/array.h"
#include "posenc/io/json.h"
#include "posenc/model/read.h"
#include "posenc/positions.h"
#include "posenc/registry.h"
#include "posenc/registry/complete.h"
#include "posenc/report/request.h"
#include "posenc/report/subject.h"
#include "posenc/report/text.h"

namespace posenc::report {

struct Subject {
  std::string title;
  std::optional<ModelSpec> model;
  std::optional<Encoding> encoding;   // SCHEME
  std::vector<std::string> filled{};  // its fields that the sizes gave
  bool is_model() const { return model.has_value(); }
};

// Of a model: the name of its file, with its folder where the file is called as all are.
std::string file_name(const std::string& path);
// Reads the model (findings and all) or parses the SCHEME.
Subject read_subject(const SubjectOptions&);
ModelSpec read_model_argument(const SubjectOptions&);
ModelSpec read_stdin_model(const ReadOptions&);  // at most 100 MB of JSON, 1 GiB of GGUF
// The layer that --layer, --tower and the default choose. Throws InputError.
const LayerSpec& chosen_layer(const ModelSpec&, const SubjectOptions&);
// The layers of the model or of --tower.
const std::vector<LayerSpec>& layers_of(const ModelSpec&, const SubjectOptions&);
// Says on stderr which of layers that turn differently was taken where nobody chose.
void say_which(const ModelSpec&, const SubjectOptions&, const LayerSpec& taken);
// What turns q and k there, for --context. Refuses models with errors and layers without rotary.
RotarySpec rotary_of(const Subject&, const SubjectOptions&);
// The same, and for a scheme with frequencies that is no rotation (pope) one block that holds them
// and that nothing turns: for tables and pictures.
RotarySpec turned_by(const Subject&, const SubjectOptions&);
RotarySpec turned_by(const Encoding&, Context);

// A:B[:STEP] (half-open, may be negative), 1,2,3 or [1,2,3], or an .npy of [t], [b,t], [axes,b,t].
struct PositionList {
  OwnedPositions owned;
  std::vector<Index> shape;                     // of the source
  operator Positions() const { return owned; }  // NOLINT(google-explicit-constructor)
};
PositionList read_positions(std::string_view);
// "4,097 tokens and more": the lengths for which the frequencies hold; empty: all.
std::string lengths_text(const RotarySpec&);
// Refuses positions of a length for which the spec does not hold, saying which --context does. With
// a --context that covers them they are a part of a sequence of that length.
void check_lengths(const SubjectOptions&, const RotarySpec&, const Positions&);
// One list of positions for a spec with several axes: every axis takes it (text tokens of M-RoPE);
// said on stderr. Any other disagreement is refused.
Positions spread_over_axes(const PositionList&, Index axes);

// FILE.npy, FILE.safetensors (its only tensor, or the one called `preferred`),
// FILE.safetensors:NAME.
// Whether the argument is one of those forms, by its ending.
bool names_array(const std::string& argument);
Array read_array(const std::string& argument, const std::string& preferred);

bool is_stdout(const std::string& path);
// --format, or the ending of the path; `known` is said when neither is there. Refuses a --format
// that contradicts the ending.
std::string output_format(const Request&, const char* known);
// npy, safetensors or csv; anything else is refused. Asked before anything is read.
std::string array_format(const Request&);
// svg, html or png, likewise.
std::string picture_format(const Request&);
// Refuses a path that is one of the files that are read (FILE.safetensors:NAME too), or one of the
// weights beside `model`: an input is never lost. Asked before anything is read.
void refuse_overwriting(const std::string& path, const std::vector<std::string>& inputs,
                        const std::string& model = "");
// The bytes of a file of such a format.
std::vector<std::byte> bytes_of(const Arrays&, const std::string& format);
// {"schema", "output", "arrays": {NAME: {"dtype", "shape"}}}, or one line for a person.
std::string written_text(const std::string& schema, const std::string& path, const Arrays&,
                         bool json);

}  // namespace posenc::report
