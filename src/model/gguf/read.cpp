// SPDX-License-Identifier: Apache-2.0
#include "posenc/model/read.h"
#include <algorithm>
#include "model/gguf/convert.h"
#include "model/gguf/lower.h"

namespace posenc {
namespace {

using namespace gguf;

std::optional<Architecture> architecture_of(Keys& keys) {
  constexpr const char* key = "general.architecture";
  const auto name = keys.text(key);
  if (!name) {
    if (!keys.failed())
      keys.error("missing_key", key, "the file does not name its architecture",
                 "--assume general.architecture=NAME");
    return std::nullopt;
  }
  auto arch = find_architecture(name->value);
  if (!arch) {
    keys.error(
        "unknown_model_type", key,
        "llama.cpp (0c1e57098) knows no architecture '" + printable(name->value) + "'",
        "--assume general.architecture=NAME of a known one, or read the model's config.json");
    return std::nullopt;
  }
  if (arch->flag("unsupported")) {
    keys.error("unknown_model_type", key,
               "'" + arch->name() + "' is no language model that llama.cpp runs",
               "read the model's config.json");
    return std::nullopt;
  }
  keys.architecture = arch->name();
  return arch;
}

// A file that names one architecture and carries another's keys.
bool carries_own_keys(const Architecture& arch, Keys& keys) {
  const std::string prefix = arch.name() + ".";
  std::string other;
  for (const GgufValue& v : keys.file().metadata) {
    if (v.key.substr(0, prefix.size()) == prefix) return true;
    if (other.empty() && v.key.substr(0, 8) != "general.") other = other_prefix(v.key);
  }
  if (other.empty()) return true;
  keys.error("contradiction", "general.architecture",
             "the file names " + arch.name() + " but its keys are those of " + other,
             "--assume general.architecture=" + other);
  return false;
}

// Every divisor list must have one number for each pair of the layers that use it.
void check_divisors(const Architecture& arch, const Hparams& h, const DivisorTensors& d,
                    Keys& keys) {
  Index widest = 0;
  for (Index il = 0; il < h.run_layers; ++il)
    if (const auto op = rope_operator(arch, h, il); op && op->uses_divisors)
      widest = std::max(widest, op->n_dims.value / 2);
  for (const Divisor* v : {&d.always, &d.beyond, &d.within})
    if (widest > 0 && !v->values.empty() && static_cast<Index>(v->values.size()) != widest)
      keys.report().error("list_length",
                          v->tensor + " must have " + std::to_string(widest) +
                              " numbers, one a pair, got " + std::to_string(v->values.size()),
                          v->tensor,
                          "convert the model again: the tensor belongs to heads of another width");
}

// Learned positions: one row a position, added to the embedding (tensor position_embd.weight).
void add_input(const Architecture& arch, const Hparams& h, Keys& keys, ModelSpec& m) {
  const std::string_view rule = arch.text("positions");
  const GgufTensor* table = keys.file().tensor("position_embd.weight");
  if (rule.empty() || (rule == "learned_if_present" && table == nullptr)) return;
  Learned learned;
  const auto width = keys.integer("embedding_length");
  learned.width = width ? width->value : 0;
  learned.rows = h.context.value;
  if (learned.width < 1 || learned.width > 1000000) {
    keys.error("out_of_range", "embedding_length", "must be 1 to 1000000");
    return;
  }
  InputEncoding e;
  e.value.scheme = learned;
  e.tensors = {"position_embd.weight"};
  e.positions = learned.rows;
  e.rows_key = "context_length";
  e.origin = Origin::class_default;
  e.where = arch.program();
  m.input.push_back(std::move(e));
}

// T5: the decoder's layers are the model's, the encoder's stand in a tower.
void add_layers(const Architecture& arch, const Hparams& h, const DivisorTensors& divisors,
                Keys& keys, ModelSpec& m) {
  const Index length = m.context.value;
  const bool two_stacks = arch.flag("encoder_too");
  const auto decoder = two_stacks ? keys.integer("decoder_block_count") : std::nullopt;
  const Index layers = decoder ? decoder->value : h.run_layers;
  if (layers < 1 || layers > 512) {
    keys.error("out_of_range", "decoder_block_count", "must be 1 to 512");
    return;
  }
  for (Index il = 0; il < layers && !keys.failed(); ++il) {
    m.layers.push_back(lower_layer(arch, h, divisors, keys, il % h.run_layers, length));
    m.layers.back().index = il;
  }
  if (!two_stacks) return;
  Hparams both_ways = h;
  both_ways.causal = arch.constant(false);
  Tower encoder;
  encoder.name = "encoder";
  for (Index il = 0; il < h.run_layers && !keys.failed(); ++il)
    encoder.layers.push_back(lower_layer(arch, both_ways, divisors, keys, il, length));
  m.towers.push_back(std::move(encoder));
}

void read_into(Keys& keys, const ReadOptions& options, ModelSpec& m) {
  const auto arch = architecture_of(keys);
  if (!arch) return;
  m.model_type = arch->name();
  if (!carries_own_keys(*arch, keys)) return;
  const Hparams h = read_hparams(*arch, keys);
  m.context = h.context;
  if (h.original_context.value > 0) m.trained_context = h.original_context.value;
  if (options.context) m.context = {*options.context, Origin::user, "--context"};
  if (options.context && *options.context < 1)
    keys.report().error("out_of_range", "the context must be positive", "--context",
                        "give a length of 1 or more");
  if (m.context.value < 1 && !keys.failed())
    keys.error("out_of_range", "context_length", "the context must be positive", "--context N");
  if (keys.failed()) return;
  const DivisorTensors divisors = read_divisors(*arch, keys);
  check_divisors(*arch, h, divisors, keys);
  if (keys.failed()) return;
  add_layers(*arch, h, divisors, keys, m);
  add_input(*arch, h, keys, m);
  note_losses(*arch, h, divisors, keys, m);
}

}  // namespace

ModelSpec read_gguf(std::span<const std::byte> bytes, const std::string& file,
                    const ReadOptions& options) {
  const GgufFile container = parse_gguf(bytes, file);
  ModelSpec m;
  m.file = file;
  m.reader = "llama_cpp";
  Keys keys(container, options);
  if (options.reader == "transformers") return hf::read_as_transformers(container, file, options);
  if (!options.reader.empty() && options.reader != "llama_cpp")
    refuse("read", "reader must be transformers or llama_cpp", options.reader);
  read_into(keys, options, m);
  keys.report_assumptions();
  m.findings = keys.report().take();
  return m;
}

}  // namespace posenc
