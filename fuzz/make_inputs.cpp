// SPDX-License-Identifier: Apache-2.0
// First inputs and dictionaries of the fuzz targets, from the conformance suites and the registry:
//   make_inputs CONFORMANCE OUT     writes OUT/<target>/* and OUT/<target>.dict
#include <cstdio>
#include <exception>
#include <fstream>
#include <set>

#include "fuzz/written_arrays.h"
#include "posenc/cache/snapshot.h"
#include "posenc/io/array.h"
#include "posenc/posenc.h"
#include "posenc/registry/fields.h"
#include "tests/support/onnx_writer.h"

namespace posenc {
namespace {

namespace fs = std::filesystem;
constexpr std::size_t kLargest = 16384;  // fuzzers work best on small inputs

class Inputs {
 public:
  explicit Inputs(fs::path out) : out_(std::move(out)) {}

  void add(const std::string& target, std::span<const std::byte> bytes) {
    if (bytes.size() > kLargest) return;
    fs::create_directories(out_ / target);
    // Thousands of small files that can be made again: not worth waiting for the disk each.
    std::ofstream(out_ / target / std::to_string(count_++), std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
  }
  void add(const std::string& target, std::string_view text) {
    add(target, std::as_bytes(std::span(text.data(), text.size())));
  }
  void dictionary(const std::string& target, const std::set<std::string>& words) {
    std::string text;
    for (const std::string& w : words) {
      text += '"';
      for (const char c : w) {
        if (c == '"' || c == '\\') text += '\\';
        text += c;
      }
      text += "\"\n";
    }
    write_file_atomically(out_ / (target + ".dict"),
                          std::as_bytes(std::span(text.data(), text.size())));
  }
  int count() const { return count_; }

 private:
  fs::path out_;
  int count_ = 0;
};

void collect_schemes(const Json& j, Inputs& inputs) {
  if (j.is_array())
    for (const Json& e : j.as_array()) collect_schemes(e, inputs);
  if (!j.is_object()) return;
  for (const auto& [key, value] : j.as_object()) {
    if (key == "scheme" && value.is_string()) inputs.add("scheme", value.as_string());
    collect_schemes(value, inputs);
  }
}

void collect_keys(const Json& j, std::set<std::string>& words) {
  if (j.is_array())
    for (const Json& e : j.as_array()) collect_keys(e, words);
  if (!j.is_object()) return;
  for (const auto& [key, value] : j.as_object()) {
    const bool plain =
        key.size() < 40 &&
        key.find_first_not_of("abcdefghijklmnopqrstuvwxyz_0123456789") == std::string::npos;
    if (plain) words.insert("\"" + key + "\":");
    collect_keys(value, words);
  }
}

// The arrays that a case names, in the form of fuzz/written_arrays.h.
Json arrays_of(const Json& one, const Arrays& arrays) {
  Json written = Json::object();
  for (const char* group : {"inputs", "outputs"})
    if (const Json* names = one.find(group))
      for (const auto& [ours, stored] : names->as_object()) {
        const auto found = arrays.find(stored.as_string());
        if (found == arrays.end()) continue;
        if (auto array = fuzz::as_written(found->second)) written.set(found->first, *array);
      }
  return written;
}

// The names of a node test's inputs in ONNX's order; null where the case is none.
Json onnx_inputs(const Json& one) {
  if (const Json* given = one.at_pointer("/params/input_names")) return *given;
  const Json* opset = one.at_pointer("/params/opset");
  if (opset == nullptr || !opset->is_integer() || opset->as_integer() != 23) return {};
  Json names = Json::array();
  for (const char* name : {"input", "X", "cos_cache", "sin_cache", "position_ids"})
    if (one.at("inputs").find(name) != nullptr) names.push(Json(name));
  return names;
}

// A node test in the form of fuzz_onnx_node.cpp.
void add_onnx_node(const Json& one, const Arrays& arrays, Inputs& inputs) {
  Json node = Json::object(), integers = Json::object(), floats = Json::object();
  node.set("inputs", onnx_inputs(one));
  if (node.at("inputs").is_null()) return;
  const Json *op = one.at_pointer("/params/operator"),
             *names = one.at_pointer("/params/output_names");
  node.set("op", op != nullptr ? *op : Json("RotaryEmbedding"));
  Json outputs = Json::array();
  for (const auto& [name, stored] : one.at("outputs").as_object()) outputs.push(Json(name));
  node.set("outputs", names != nullptr ? *names : outputs);
  for (const auto& [name, x] : one.at("params").at("attributes").as_object())
    (name == "scale" || name == "softcap" ? floats : integers).set(name, x);
  node.set("integers", integers);
  node.set("floats", floats);
  Json tensors = Json::object();
  for (const char* group : {"inputs", "outputs"})
    for (const auto& [name, stored] : one.at(group).as_object())
      if (auto array = fuzz::as_written(arrays.at(stored.as_string()))) tensors.set(name, *array);
  node.set("tensors", tensors);
  inputs.add("onnx_node", node.dump());
}

// Each case alone, as a suite of one.
void add_cases(const fs::path& path, Inputs& inputs, std::set<std::string>& words) {
  const Json file = read_json(path);
  const Json* cases = file.is_array() ? &file : file.find("cases");
  if (cases == nullptr) return;
  Arrays arrays;
  const fs::path beside = path.parent_path() / "arrays.safetensors";
  if (fs::exists(beside)) arrays = read_safetensors(beside);
  for (const Json& one : cases->as_array()) {
    const Json suite =
        Json::object({{"cases", Json::array({one})}, {"arrays", arrays_of(one, arrays)}});
    inputs.add("cases", suite.dump());
    add_onnx_node(one, arrays, inputs);
    if (const Json* checks = one.find("posenc")) {
      collect_schemes(*checks, inputs);
      collect_keys(*checks, words);
    }
    if (const Json* config = one.at_pointer("/params/config"); config && config->is_object())
      inputs.add("config", config->dump());
  }
}

void add_arrays(const fs::path& path, Inputs& inputs) {
  std::size_t taken = 0;
  for (const auto& [name, a] : read_safetensors(path)) {
    if (a.bytes.size() > 512 || taken++ > 40) continue;
    inputs.add("safetensors", safetensors_bytes({{name, a}, {"again", a}}, {{"k", "v"}}));
    if (a.dtype != DType::bf16) inputs.add("npy", npy_bytes(a));
    inputs.add("onnx", test::onnx::tensor_pb(a, name));
    if (a.dtype != DType::i32 && a.dtype != DType::u8)
      inputs.add("onnx", test::onnx::typed_tensor_pb(a));
  }
}

// Caches of a few tokens, with and without holes and shifts. fuzz_snapshot.cpp has the same sizes.
void add_snapshots(Inputs& inputs) {
  const PagePool pool(
      {.pages = 4, .heads = 1, .head_dim = 32, .value_dim = 32, .arrays = {{"document"}}});
  const RotarySpec rope = resolve(Rope{.head_dim = 32, .pairing = Pairing::half_split});
  for (const KeyKeeping keeping : {KeyKeeping::anchored, KeyKeeping::unrotated})
    for (const Index tokens : {Index{0}, Index{3}, Index{20}}) {
      KeyCache cache(pool, rope, keeping);
      const std::vector<float> x(static_cast<std::size_t>(tokens * 32), 0.5f);
      const std::vector<Index> document(static_cast<std::size_t>(tokens), 1);
      const NamedArray arrays[] = {{"document", tensor(std::span(document))}};
      const OwnedPositions at = arange(7, tokens);
      NewTokens t;
      t.k = t.v = heads(x.data(), tokens, 1, 32), t.positions = at, t.arrays = arrays;
      cache.append(t);
      inputs.add("snapshot", key_cache_bytes(cache));
      if (tokens < 20) continue;
      cache.evict(2, 4), cache.shift(9, 20, -2);
      inputs.add("snapshot", key_cache_bytes(cache));
    }
}

void add_registry(Inputs& inputs) {
  std::set<std::string> words{"+",    "[",     "]",  ",",    "@",     "none",
                              "true", "false", "\"", "1e+5", "=[1,2]"};
  auto all = all_schemes();
  for (const SchemeInfo& s : all_scalings()) all.push_back(s);
  for (const SchemeInfo& s : all) {
    words.insert(std::string(s.card.name));
    std::string text = s.family == "scaling" ? "rope head_dim=8 pairing=half_split + " : "";
    text += s.card.name;
    for (const FieldInfo& f : s.fields) {
      words.insert(std::string(f.name) + "=");
      for (const std::string_view c : f.choices) words.insert(std::string(c));
      std::string value = f.default_text;
      if (!f.choices.empty() && value == "unset") value = f.choices.front();
      if (f.type == "integer" && f.required) value = "8";
      if (f.type == "number" && f.required) value = "2";
      if (f.type.starts_with("list") && f.required) value = "[1,2,3,4]";
      text.append(" ").append(f.name).append("=").append(value);
    }
    inputs.add("scheme", text);
  }
  inputs.dictionary("scheme", words);
}

void add_onnx_models(Inputs& inputs) {
  Json attributes = Json::object();
  inputs.add("onnx", test::onnx::model_pb({"X", "cos", "sin"}, attributes));
  attributes.set("num_heads", 2);
  attributes.set("interleaved", 1);
  inputs.add("onnx", test::onnx::model_pb({"X", "cos", "sin", "positions"}, attributes));
}

void make(const fs::path& suites, const fs::path& out) {
  Inputs inputs(out);
  std::set<std::string> words{"NaN", "Infinity", "null", "true", "false", "1e400", "\\u0000"};
  for (const auto& entry : fs::recursive_directory_iterator(suites)) {
    const fs::path& p = entry.path();
    if (!entry.is_regular_file()) continue;
    if (p.filename() == "cases.json") {
      add_cases(p, inputs, words);
    } else if (p.extension() == ".json" && entry.file_size() <= kLargest) {
      const auto bytes = read_file(p, kLargest);
      inputs.add("config", bytes);
      inputs.add("json", bytes);
      collect_keys(read_json(p), words);
    } else if (p.extension() == ".gguf" && entry.file_size() <= kLargest) {
      inputs.add("gguf", read_file(p, kLargest));
    } else if (p.filename() == "arrays.safetensors") {
      add_arrays(p, inputs);
    } else if ((p.extension() == ".pb" || p.extension() == ".onnx") &&
               entry.file_size() <= kLargest) {
      inputs.add("onnx", read_file(p, kLargest));
    }
  }
  add_registry(inputs);
  add_onnx_models(inputs);
  add_snapshots(inputs);
  for (const char* target : {"json", "config", "cases", "onnx_node"})
    inputs.dictionary(target, words);
  std::printf("%d inputs\n", inputs.count());
}

}  // namespace
}  // namespace posenc

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: make_inputs CONFORMANCE OUT\n");
    return 2;
  }
  try {
    posenc::make(argv[1], argv[2]);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "make_inputs: %s\n", e.what());
    return 3;
  }
  return 0;
}
