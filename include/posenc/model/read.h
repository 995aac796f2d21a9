// SPDX-License-Identifier: Apache-2.0
// Reading a model: a config.json of any era, a directory that holds one, or a GGUF file. A file
// means what its reference program computes (transformers 5.23; llama.cpp), even where that ignores
// or rounds what the file says; the difference is a finding. The reader collects findings, never
// guesses, and throws FormatError only for files that are not JSON or GGUF. Callers should reject a model
// with has_error().
#pragma once
#include <iosfwd>
#include <string>

#include "posenc/core/file_path.h"
#include "posenc/model/read_options.h"
#include "posenc/model/spec.h"

namespace posenc::inline v0 {

POSENC_API ModelSpec read_model(const FilePath&, const ReadOptions& = {});
// The content of a pipe: a config of at most 100 MB or a GGUF file of at most 1 GiB, distinguished by
// the first bytes. Errors name `file`.
POSENC_API ModelSpec read_model(std::istream&, const std::string& file, const ReadOptions& = {});
// The text of a config.json. As parse_json, but Python's NaN and Infinity are accepted (as null) for
// keys that have nothing to do with positions, as in real files; elsewhere FormatError.
POSENC_API Json parse_config(std::string_view text, const std::string& file);
POSENC_API ModelSpec read_hugging_face(const Json& config, const std::string& file,
                                       const ReadOptions& = {});
POSENC_API ModelSpec read_gguf(std::span<const std::byte>, const std::string& file,
                               const ReadOptions& = {});

// The reader's findings and those of the doctor only: risks at the context, and the tables of positions
// in the weights at ModelSpec::weights (which are read only for this).
POSENC_API std::vector<Finding> doctor(const ModelSpec&);

// posenc.explain/1 and posenc.doctor/1 of docs/interfaces.md.
POSENC_API Json explain_json(const ModelSpec&, std::optional<Index> layer = {});
POSENC_API Json doctor_json(const std::vector<Finding>&);

// Throws ModelError listing the errors of the model, if any.
POSENC_API void require_readable(const ModelSpec&);

}  // namespace posenc::v0
