// SPDX-License-Identifier: Apache-2.0
// explain, doctor, refuse, container: what files say.
#include <cmath>

#include "conformance/runner/encoding.h"
#include "posenc/core/error.h"
#include "posenc/io/gguf.h"

namespace posenc::conformance {
namespace {

std::string shown(const Json* j) {
  return j == nullptr ? "nothing" : j->dump();
}

// A pointer of `equal` against a literal: numbers within 1e-14 (relative), everything else equal.
bool same(const Json& got, const Json& want) {
  if (got.is_number() && want.is_number()) {
    const double a = got.as_number(), b = want.as_number();
    return a == b || std::abs(a - b) <= 1e-14 * std::abs(b);
  }
  if (got.is_array() && want.is_array()) {
    if (got.as_array().size() != want.as_array().size()) return false;
    for (std::size_t i = 0; i < got.as_array().size(); ++i)
      if (!same(got.as_array()[i], want.as_array()[i])) return false;
    return true;
  }
  return got == want;
}

void expect_member(Check& check, const Json& explained, const std::string& pointer,
                   const Json& want) {
  const Json* got = explained.at_pointer(pointer);
  const bool numbers = got == nullptr || got->is_number() || got->is_array();
  if (numbers && want.is_string() && check.in_case.has_array(want.as_string())) {
    const Slice array = slice(check.in_case, want.as_string());
    std::vector<double> values;
    if (got != nullptr && got->is_number()) values.push_back(got->as_number());
    if (got != nullptr && got->is_array())
      for (const Json& v : got->as_array()) values.push_back(v.as_number());
    check.expect(static_cast<Index>(values.size()) == array.count(),
                 pointer + " should hold " + std::to_string(array.count()) + " numbers, got " +
                     std::to_string(values.size()));
    if (static_cast<Index>(values.size()) == array.count()) check.expect(array, values);
    return;
  }
  check.expect(got != nullptr && same(*got, want),
               pointer + " should be " + want.dump() + ", got " + shown(got));
}

// "/layer/..." is the layer that the check means.
std::string of_the_layer(const Check& check, const ModelSpec& model, const std::string& pointer) {
  if (pointer.rfind("/layer/", 0) != 0) return pointer;
  return "/layers/" + std::to_string(layer_of(check, model).index) + pointer.substr(6);
}

// 1 where the query at `q` sees the key at `k`, as the layer's attention says.
bool sees(const AttentionSpec& a, Index q, Index k) {
  if (a.kind == AttentionKind::none || a.kind == AttentionKind::linear) return false;
  if (a.left && q - k > *a.left) return false;
  if (a.right && k - q > *a.right) return false;
  return !a.chunk || q / *a.chunk == k / *a.chunk;
}

void expect_visible(Check& check, const ModelSpec& model, std::string_view ours, Index query,
                    Index tokens) {
  if (check.array_name("out", ours) == nullptr) return;
  std::vector<double> seen;
  for (const LayerSpec& layer : model.layers)
    for (Index k = 0; k < tokens; ++k) seen.push_back(sees(layer.attention, query, k) ? 1 : 0);
  check.expect(ours, seen, {static_cast<Index>(model.layers.size()), tokens});
}

// atan2 of the rows at position 1: the frequencies themselves, of each layer that turns.
void expect_angles(Check& check, const ModelSpec& model) {
  if (check.array_name("out", "angles") == nullptr) return;
  const double turn = 2 * std::acos(-1.0);
  const std::string layout = check.text("layout", "half");
  Index turning = 0;
  std::vector<double> all;
  for (const LayerSpec& layer : model.layers) {
    if (!layer.rotary) continue;
    ++turning;
    for (const RotaryBlock& block : layer.rotary->blocks) {
      const auto& f = block.spectrum.frequency;
      const std::size_t columns = layout == "half" ? f.size() : 2 * f.size();
      for (std::size_t c = 0; c < columns; ++c) {
        const double own = f[layout == "repeated" ? c / 2 : c % f.size()];
        all.push_back(std::remainder(own, turn));
      }
    }
  }
  check.expect("angles", all,
               {turning, turning == 0 ? 0 : static_cast<Index>(all.size()) / turning});
}

// The query factor of each layer at the positions 0 .. tokens - 1 (1 where it has none).
void expect_query_factors(Check& check, const ModelSpec& model, Index tokens) {
  if (check.array_name("out", "query_factor") == nullptr) return;
  std::vector<double> all;
  for (const LayerSpec& layer : model.layers)
    for (Index t = 0; t < tokens; ++t)
      all.push_back(layer.query_temperature
                        ? query_factor(*layer.query_temperature, static_cast<double>(t))
                        : 1.0);
  check.expect("query_factor", all, {static_cast<Index>(model.layers.size()), tokens});
}

void expect_codes(Check& check, const std::vector<Finding>& findings) {
  const Json* codes = check.find("codes");
  if (codes == nullptr) return;
  for (const Json& code : codes->as_array()) {
    const std::string name = code.is_string() ? code.as_string() : code.at("code").as_string();
    const Json* severity = code.find("severity");
    if (code.is_object())
      for (const auto& [key, value] : code.as_object())
        if (key != "code" && key != "severity")
          refuse("case", "a code to be found has code and severity", key);
    bool found = false;
    for (const Finding& f : findings)
      found = found || (f.code == name &&
                        (severity == nullptr || enum_text(f.severity) == severity->as_string()));
    check.expect(found, "the doctor does not say " + name +
                            (severity == nullptr ? "" : " as " + severity->as_string()));
  }
}

}  // namespace

void run_explain(Check& check) {
  const ModelSpec model = read_case_model(check);
  require_readable(model);
  const Json explained = explain_json(model);
  if (const Json* equal = check.find("equal"))
    for (const auto& [pointer, want] : equal->as_object())
      expect_member(check, explained, of_the_layer(check, model, pointer), want);
  if (check.find("same_as") != nullptr) {
    const ModelSpec twin =
        read_case_model(check.inherited(Json::object({{"model", *check.find("same_as")}})));
    const Json* own = explained.find("layers");
    const Json theirs = explain_json(twin);
    check.expect(
        own != nullptr && theirs.find("layers") != nullptr && *own == *theirs.find("layers"),
        "the layers should be those of " + check.text("same_as"));
  }
  const Index tokens = check.integer("tokens", 0);
  if (tokens < 0 || tokens > (Index{1} << 20))
    refuse_field("case", "tokens", "must be 0 to 1048576", tokens);
  expect_visible(check, model, "visible", check.integer("query", 0), tokens);
  expect_angles(check, model);
  expect_query_factors(check, model, tokens);
}

// codes: each must be found (with its severity where given). errors: the codes of error severity
// are exactly these. verdict: error | warning | note | none, the worst finding.
void run_doctor(Check& check) {
  ModelSpec model = read_case_model(check);
  const std::vector<Finding> findings = doctor(model);
  expect_codes(check, findings);
  if (const Json* errors = check.find("errors")) {
    for (const Finding& f : findings) {
      if (f.severity != Severity::error) continue;
      bool listed = false;
      for (const Json& e : errors->as_array()) listed = listed || e.as_string() == f.code;
      check.expect(listed, "the doctor calls " + f.code + " an error: " + f.message);
    }
    for (const Json& e : errors->as_array()) {
      bool found = false;
      for (const Finding& f : findings)
        found = found || (f.code == e.as_string() && f.severity == Severity::error);
      check.expect(found, "the doctor does not call " + e.as_string() + " an error");
    }
    check.expect(true, "");
  }
  if (const Json* verdict = check.find("verdict")) {
    std::string worst = "none";
    for (const Finding& f : findings)
      if (worst == "none" || worst == "note" || f.severity == Severity::error)
        worst = enum_text(f.severity);
    check.expect(worst == verdict->as_string(), "the worst finding is " + worst);
  }
}

// The file or the scheme must be refused; `says` stands in the message, and the message names the
// file. kind container: no reading at all; value: read, but no positions can be made of it.
void run_refuse(Check& check) {
  const std::string says = check.text("says"), kind = check.text("kind");
  std::string message;
  bool container = false;
  check.expect(check.number("exit", 3) == 3, "bad input is exit 3 from every verb");
  if (check.find("scheme") != nullptr) {
    (void)check.find("context");  // a scheme may be refused before its length is looked at
    try {
      (void)rotary_of(check);
    } catch (const std::invalid_argument& e) {
      message = e.what();
    }
  } else {
    try {
      const ModelSpec model = read_case_model(check);
      try {
        require_readable(model);
      } catch (const std::exception& e) {
        message = e.what();
      }
    } catch (const FormatError& e) {
      message = e.what();
      container = true;
    }
  }
  check.expect(!message.empty(), "it was not refused");
  if (message.empty()) return;
  if (!says.empty())
    check.expect(message.find(says) != std::string::npos,
                 "the refusal does not say " + says + ": " + message);
  if (kind == "container") check.expect(container, "it was read before it was refused: " + message);
  if (check.find("scheme") == nullptr && check.find("model")->is_string()) {
    const Json named = check.in_case.parameter(check.text("model"));
    if (named.is_string())
      check.expect(message.find(std::filesystem::path(named.as_string()).filename().string()) !=
                       std::string::npos,
                   "the refusal does not name the file: " + message);
  }
}

namespace {

void expect_metadata(Check& check, const GgufFile& file, const std::string& key, const Json& want) {
  const GgufValue* value = file.find(key);
  check.expect(value != nullptr, "the reader does not find " + key);
  if (value == nullptr) return;
  if (want.is_bool())
    check.expect(value->boolean() == want.as_bool(), key + " should be " + want.dump());
  else if (want.is_string())
    check.expect(value->text() == want.as_string(), key + " should be " + want.dump());
  else if (want.is_number())
    check.expect(value->number() == want.as_number(), key + " should be " + want.dump());
  else if (want.is_array() && !want.as_array().empty() && want.as_array()[0].is_integer()) {
    std::vector<Index> list;
    for (const Json& v : want.as_array()) list.push_back(v.as_integer());
    check.expect(value->integers() == list, key + " should be " + want.dump());
  }
}

}  // namespace

// A GGUF container: read: false | true | either; metadata and tensors as another reader listed
// them; out: the values of its float tensors.
void run_container(Check& check) {
  const std::filesystem::path path = model_path(check);
  const MappedFile mapped(path);
  std::optional<GgufFile> file;
  std::string message;
  try {
    file = parse_gguf(mapped.bytes(), path.string());
  } catch (const FormatError& e) {
    message = e.what();
  }
  const std::string read = check.text("read", "true");
  if (read != "either")
    check.expect(file.has_value() == (read == "true"),
                 file ? "the container was read" : "the container was refused: " + message);
  else
    check.expect(true, "");
  if (!file) {
    for (const char* key : {"of", "out"}) (void)check.find(key);  // of the other answer of `either`
    return;
  }
  if (const Json* of = check.find("of")) {
    const Json listed = check.in_case.parameter(of->as_string());
    check.expect(file->version == static_cast<std::uint32_t>(listed.at("version").as_integer()),
                 "the version is " + std::to_string(file->version));
    check.expect(file->big_endian == (listed.at("endian").as_string() == "BIG"), "the byte order");
    check.expect(file->alignment == static_cast<std::uint32_t>(listed.at("alignment").as_integer()),
                 "the alignment is " + std::to_string(file->alignment));
    for (const auto& [key, value] : listed.at("metadata").as_object())
      expect_metadata(check, *file, key, value.at("value"));
    check.expect(file->metadata.size() == listed.at("metadata").as_object().size(),
                 "the number of keys is " + std::to_string(file->metadata.size()));
    check.expect(file->tensors.size() == listed.at("tensors").as_array().size(),
                 "the number of tensors is " + std::to_string(file->tensors.size()));
  }
  if (const Json* out = check.find("out"))
    for (const auto& [name, array] : out->as_object()) {
      const GgufTensor* tensor = file->tensor(name);
      check.expect(tensor != nullptr, "the reader does not find the tensor " + name);
      if (tensor != nullptr)
        check.expect(slice(check.in_case, array.as_string()), file->values(*tensor));
    }
}

}  // namespace posenc::conformance
