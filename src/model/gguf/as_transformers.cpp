// SPDX-License-Identifier: Apache-2.0
// A GGUF file as transformers 5.23 loads it: a config made of its keys (integrations/ggml.py).
// Scalings and factor tensors are not among them.
#include <algorithm>
#include <cctype>
#include <cmath>

#include "model/gguf/convert.h"

namespace posenc::inline v0::hf {
namespace {

std::string text_of(const GgufFile& file, std::string_view key) {
  const GgufValue* v = file.find(key);
  return std::string(v ? v->text().value_or("") : "");
}

// One number of the file, as the config has it; null when it is not there or no finite number.
Json config_number(const GgufFile& file, const std::string& key) {
  const GgufValue* v = file.find(key);
  if (!v) return nullptr;
  if (const auto whole = v->integer()) return *whole;
  const auto real = v->number();
  return real && std::isfinite(*real) ? Json(*real) : Json(nullptr);
}

bool carries_scaling(const GgufFile& file, const std::string& architecture) {
  const Json factor = config_number(file, architecture + ".rope.scaling.factor");
  if (factor.is_number() && factor.as_number() != 1 && factor.as_number() != 0) return true;
  return file.tensor("rope_freqs.weight") || file.tensor("rope_factors_long.weight");
}

// The config that transformers makes of the file by a row of `loads`.
Json config_of(const GgufFile& file, const std::string& architecture, const Json& rule) {
  Json config = Json::object({{"model_type", rule.at("type").as_string()}});
  std::string name = text_of(file, "general.name");
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (const Json* other = rule.find("by_name"))  // told apart by its name alone
    for (const auto& [part, type] : other->as_object())
      if (name.find(part) != std::string::npos) config.set("model_type", type.as_string());
  const Json* without = rule.find("without");
  for (const Json* keys :
       {rule.find("common") ? &gguf_conversions().at("loads_common") : nullptr, rule.find("keys")})
    for (const auto& [key, field] : keys ? keys->as_object() : Json::Object()) {
      Json value = config_number(file, architecture + "." + key);
      if (!value.is_null() && !(without && without->as_string() == key))
        config.set(field.as_string(), std::move(value));
    }
  return config;
}

}  // namespace

ModelSpec read_as_transformers(const GgufFile& container, const std::string& file,
                               const ReadOptions& options) {
  const std::string architecture = text_of(container, "general.architecture");
  const Json* rule = gguf_conversions().at("loads").find(architecture);
  ModelSpec spec;
  spec.file = file;
  spec.reader = "transformers";
  Diagnostics report;
  if (!rule) {
    report.error("reader_refused",
                 "it is not known what transformers makes of a GGUF file of this architecture, or "
                 "it does not load any",
                 "general.architecture", "read the model's config.json");
  } else {
    ReadOptions inside = options;
    inside.reader.clear();
    spec = read_hugging_face(config_of(container, architecture, *rule), file, inside);
    report.add(spec.findings);
    if (carries_scaling(container, architecture))
      report.warn("gguf_lost",
                  "the file scales its frequencies, but transformers does not read scalings from "
                  "GGUF files: frequencies stay unscaled",
                  architecture + ".rope.scaling", "load the model's own files");
    report.note("converted",
                "read as transformers loads a GGUF file: places are keys of the config that it "
                "makes, not of the file",
                file, "nothing to do: read the file without --reader for its own keys");
  }
  spec.findings = report.take();
  return spec;
}

}  // namespace posenc::v0::hf
