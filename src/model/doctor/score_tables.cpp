// SPDX-License-Identifier: Apache-2.0
// The tensors of what acts in the score, against what the schemes need: they are there, their sizes
// that do not depend on heads fit, and their numbers are finite.
#include <algorithm>
#include <cmath>
#include <set>

#include "model/doctor/input.h"
#include "model/learned_tables.h"
#include "posenc/attention/plan.h"
#include "posenc/core/error.h"

namespace posenc::inline v0 {
namespace {

// A parameter at one head of one channel, at two heads, at two channels: sizes that stay are fixed.
struct Needed {
  std::vector<Index> one, heads, channels;
  bool fixed(std::size_t axis) const {
    return one[axis] == heads[axis] && one[axis] == channels[axis];
  }
};

std::optional<Needed> needed(const Encoding& e, const std::string& name) {
  const AnyRelativeScheme scheme = relative_scheme(e);
  const auto shape = [&](Index heads, Index channels) -> std::vector<Index> {
    for (Parameter& p : scheme.parameters({.heads = heads, .head_dim = channels}))
      if (p.name == name) return std::move(p.shape);
    return {};
  };
  Needed n{shape(1, 1), shape(2, 1), shape(1, 2)};
  if (n.one.empty() || n.one.size() != n.heads.size() || n.one.size() != n.channels.size())
    return std::nullopt;
  return n;
}

class ScoreDoctor {
 public:
  ScoreDoctor(bool gguf, ModelWeights& weights, Diagnostics& report)
      : gguf_(gguf), weights_(weights), report_(report) {}

  void look(const std::vector<LayerSpec>& layers) {
    for (const LayerSpec& layer : layers)
      for (const LayerEncoding& e : layer.encodings)
        for (const auto& [parameter, tensor] : e.tensors)
          if (seen_.insert(tensor).second) one(layer, e, parameter, tensor);
  }

 private:
  void one(const LayerSpec& layer, const LayerEncoding& e, const std::string& parameter,
           const std::string& tensor) {
    const std::vector<StoredTensor> found = weights_.find(tensor);
    const std::string what = parameter + " of " + std::string(card(e.value.scheme).name);
    if (found.empty())
      report_.add(
          gguf_ ? Severity::error : Severity::warning, "table_missing",
          {"the weights have no tensor {}, {} in layer {}{}", tensor, what, layer.index,
           gguf_ ? ": llama.cpp needs it" : ": transformers starts it at random, with a warning"},
          weights_.place(), "take the tensor from the model's own checkpoint");
    for (const StoredTensor& t : found) {
      if (!fits(e, parameter, what, t)) continue;
      if (!t.readable) continue;
      const std::vector<double> values = weights_.values(t);
      const auto bad = std::ranges::find_if(values, [](double v) { return !std::isfinite(v); });
      if (bad != values.end())
        report_.error(
            "not_finite",
            {"{} holds infinities or NaN, the first is number {}", t.name, bad - values.begin()},
            t.file + "#" + t.name,
            "the checkpoint is damaged, or was cast to float16 where it overflows");
    }
  }

  bool fits(const LayerEncoding& e, const std::string& parameter, const std::string& what,
            const StoredTensor& t) {
    const std::optional<Needed> n = needed(e.value, parameter);
    if (!n) return true;
    const std::vector<Index>& stored = t.shape;
    bool fine = stored.size() == n->one.size();
    for (std::size_t i = 0; fine && i < stored.size(); ++i)
      fine = !n->fixed(i) || stored[i] == n->one[i];
    if (fine) return true;
    std::string wanted;
    for (std::size_t i = 0; i < n->one.size(); ++i)
      wanted += (i > 0 ? ", " : "") +
                (n->fixed(i) ? std::to_string(n->one[i])
                             : std::string(n->one[i] != n->heads[i] ? "heads" : "head_dim"));
    report_.error("table_shape",
                  {"{} has shape {}, {} needs [{}]", t.name, shape_text(stored), what, wanted},
                  t.file + "#" + t.name, "state the sizes of the checkpoint in the config");
    return false;
  }

  bool gguf_;
  ModelWeights& weights_;
  Diagnostics& report_;
  std::set<std::string> seen_;
};

}  // namespace

void find_score_faults(const ModelSpec& spec, ModelWeights& weights, Diagnostics& report) {
  ScoreDoctor doctor(spec.reader == "llama_cpp", weights, report);
  doctor.look(spec.layers);
  for (const Tower& t : spec.towers) doctor.look(t.layers);
}

}  // namespace posenc::v0
