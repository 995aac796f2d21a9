// SPDX-License-Identifier: Apache-2.0
// The numbers of a model's tables, from the weights beside its config (*.safetensors; sharded ones by
// their index) or from the GGUF file. Files are mapped, and only headers are read until a tensor is
// requested.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "posenc/core/parameter.h"
#include "posenc/model/spec.h"

namespace posenc::inline v0 {

struct StoredTensor {
  std::string file, name, dtype;  // dtype as the file writes it: F32, BF16, f16 ...
  std::vector<Index> shape;       // outermost first
  std::size_t at = 0;             // which file and tensor, for ModelWeights
  bool readable = false;          // of a float type that `values` widens
};

class POSENC_API ModelWeights {
 public:
  // ModelSpec::weights: a folder, a GGUF file, or empty (nothing is found then). Throws FormatError
  // for an index that is broken or names no file beside it.
  explicit ModelWeights(const std::string& where);
  ~ModelWeights();
  ModelWeights(ModelWeights&&) noexcept;
  ModelWeights& operator=(ModelWeights&&) noexcept;

  bool any() const noexcept;  // whether there are weights
  std::string place() const;  // for messages: the files, or where they were expected
  // Tensors called `name` or "....name", in the order of the files. Throws FormatError for a file
  // that is not a safetensors file (a pointer of git LFS, a file that was cut off).
  std::vector<StoredTensor> find(std::string_view name);
  // Every element, widened. Throws FormatError: another dtype, more than 2^27 elements, data that
  // contradict the shape or that the file lacks.
  std::vector<double> values(const StoredTensor&);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The table of a scheme's parameter number `k` as [rows, width]: axes before the last count rows
// ([1, rows, width], a grid [height, width, channels], two tables one after the other).
// Throws FormatError if the tensor has another shape than the scheme requires, std::runtime_error if
// there is none or there are several; both name tensor and files.
struct TableValues {
  StoredTensor tensor;
  Index rows = 0, width = 0;
  std::vector<double> values;
};
POSENC_API std::vector<TableValues> read_tables(ModelWeights&, const InputEncoding&);

// The learned arrays of a layer's schemes, in the required shapes: `needed` are the parameters of an
// AttentionPlan of the layer's schemes (model/layer_attention.h), "table" or "1.table". Parameters whose
// tensor the layer does not name are omitted. Throws FormatError if a tensor has another shape (except
// axes of size 1), std::runtime_error if there is none or there are several.
struct ParameterValues {
  std::string name;
  StoredTensor tensor;
  std::vector<Index> shape;
  std::vector<double> values;
};
POSENC_API std::vector<ParameterValues> read_parameters(ModelWeights&, const LayerSpec&,
                                                        const std::vector<Parameter>& needed);
// LayerSpec::sinks of `heads` heads. Throws as above.
POSENC_API ParameterValues read_sinks(ModelWeights&, const LayerSpec&, Index heads);

// Findings about the stored tables of all input encodings of the model and its towers: part of doctor().
// Empty without weights.
POSENC_API std::vector<Finding> check_tables(const ModelSpec&);

}  // namespace posenc::v0
