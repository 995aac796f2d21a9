// SPDX-License-Identifier: Apache-2.0
// A GGUF file as transformers 5.23 loads it: a config made of its keys (integrations/ggml.py).
// Scalings and factor tensors are not among them.
#include <algorithm>
#include <cctype>
#include <cmath>

#include "model/gguf/convert.h"

namespace posenc::hf {
namespace {

std::string text_of(const GgufFile& file, std::string_view key) {
  const GgufValue* v = file.find(key);
  const auto text = v ? v->text() : std::nullopt;
  return text ? std::string(*text) : std::string();
}

// One number of the file, as the config has it; null when it is not there or no finite number.
Json number_of(const GgufFile& file, const std::string& key) {
  const GgufValue* v = file.find(key);
  if (!v) return nullptr;
  if (const auto whole = v->integer()) return *whole;
  const auto real = v->number();
  return real && std::isfinite(*real) ? Json(*real) : Json(nullptr);
}

void take(const GgufFile& file, const std::string& architecture, const Json& keys,
          const Json* without, Json& config) {
  for (const auto& [key, name] : keys.as_object()) {
    if (without && without->as_string() == key) continue;
    Json value = number_of(file, architecture + "." + key);
    if (!value.is_null()) config.set(name.as_string(), std::move(value));
  }
}

bool carries_scaling(const GgufFile& file, const std::string& architecture) {
  const Json factor = number_of(file, architecture + ".rope.scaling.factor");
  if (factor.is_number() && factor.as_number() != 1 && factor.as_number() != 0) return true;
  return std::any_of(file.tensors.begin(), file.tensors.end(), [](const GgufTensor& t) {
    return t.name == "rope_freqs.weight" || t.name == "rope_factors_long.weight";
  });
}

}  // namespace

ModelSpec read_as_transformers(const GgufFile& container, const std::string& file,
                               const ReadOptions& options) {
  const std::string architecture = text_of(container, "general.architecture");
  const Json* rule = gguf_conversions().at("loads").find(architecture);
  Diagnostics report;
  if (!rule) {
    report.error(
        "reader_refused",
        "what transformers makes of a GGUF file of this architecture is not known here, or "
        "it loads none",
        "general.architecture", "read the model's config.json");
    ModelSpec spec;
    spec.file = file;
    spec.reader = "transformers";
    spec.findings = report.take();
    return spec;
  }
  Json config = Json::object({{"model_type", rule->at("type").as_string()}});
  std::string name = text_of(container, "general.name");
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (const Json* other = rule->find("by_name"))  // told apart by its name alone
    for (const auto& [part, type] : other->as_object())
      if (name.find(part) != std::string::npos) config.set("model_type", type.as_string());
  if (rule->find("common"))
    take(container, architecture, gguf_conversions().at("loads_common"), rule->find("without"),
         config);
  if (const Json* keys = rule->find("keys")) take(container, architecture, *keys, nullptr, config);
  ReadOptions inside = options;
  inside.reader.clear();
  ModelSpec spec = read_hugging_face(config, file, inside);
  report.add(spec.findings);
  if (carries_scaling(container, architecture))
    report.warn("gguf_lost",
                "the file scales its frequencies, and transformers reads nothing of that from a "
                "GGUF file: they stay as they were before the scaling",
                architecture + ".rope.scaling", "load the model's own files");
  report.note("converted",
              "read as transformers loads a GGUF file: each place is a key of the config that it "
              "makes, not of the file",
              file, "nothing to do: read the file without --reader for its own keys");
  spec.findings = report.take();
  return spec;
}

}  // namespace posenc::hf
