// SPDX-License-Identifier: Apache-2.0
// Reading a model: a config.json of any era, a directory that holds one, or a GGUF file. A file
// means what its reference program computes (transformers 5.23; llama.cpp), even where that ignores
// or rounds what the file says; the difference is a finding. The reader collects findings, never
// guesses, and throws FormatError only for what is no JSON or no GGUF at all. Callers refuse on
// has_error().
#pragma once
#include <filesystem>
#include <iosfwd>
#include <string>

#include "posenc/model/read_options.h"
#include "posenc/model/spec.h"

namespace posenc {

POSENC_API ModelSpec read_model(const std::filesystem::path&, const ReadOptions& = {});
// What comes out of a pipe: a config of at most 100 MB or a GGUF file of at most 1 GiB, by its first
// bytes. `file` is named in errors.
POSENC_API ModelSpec read_model(std::istream&, const std::string& file, const ReadOptions& = {});
// The text of a config.json. As parse_json, but Python's NaN and Infinity may stand under keys that
// say nothing of positions, as real files have them (null then); elsewhere FormatError.
POSENC_API Json parse_config(std::string_view text, const std::string& file);
POSENC_API ModelSpec read_hugging_face(const Json& config, const std::string& file,
                                       const ReadOptions& = {});
POSENC_API ModelSpec read_gguf(std::span<const std::byte>, const std::string& file,
                               const ReadOptions& = {});

// The findings that only the doctor looks for, appended to the reader's own: risks at the context,
// and the tables of positions in the weights that lie at ModelSpec::weights (read for this alone).
POSENC_API std::vector<Finding> doctor(const ModelSpec&);

// posenc.explain/1 and posenc.doctor/1 of docs/interfaces.md.
POSENC_API Json explain_json(const ModelSpec&, std::optional<Index> layer = {});
POSENC_API Json doctor_json(const std::vector<Finding>&);

// Throws ModelError listing the errors of the model, if any.
POSENC_API void require_readable(const ModelSpec&);

}  // namespace posenc
