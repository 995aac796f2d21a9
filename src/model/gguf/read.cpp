// SPDX-License-Identifier: Apache-2.0
#include "posenc/model/read.h"
#include <algorithm>
#include "model/gguf/convert.h"
#include "model/gguf/hparams.h"

namespace posenc::inline v0 {
namespace {

using namespace gguf;

std::optional<Architecture> architecture_of(Keys& keys) {
  constexpr const char* key = "general.architecture";
  const auto name = keys.get<std::string>(key);
  auto arch = name ? find_architecture(name->value) : std::nullopt;
  if (!name && !keys.failed())
    keys.error("missing_key", key, "the file does not name its architecture",
               "--assume general.architecture=NAME");
  else if (name && !arch)
    keys.error(
        "unknown_model_type", key,
        {"llama.cpp (0c1e57098) knows no architecture '{}'", printable(name->value)},
        "--assume general.architecture=NAME of a known one, or read the model's config.json");
  else if (arch && arch->flag("unsupported"))
    keys.error("unknown_model_type", key,
               {"'{}' is no language model that llama.cpp runs", arch->name()},
               "read the model's config.json");
  if (keys.failed()) return std::nullopt;
  keys.architecture = arch->name();
  return arch;
}

// A file that names one architecture and carries another's keys.
bool carries_own_keys(const Architecture& arch, Keys& keys) {
  std::string other;
  for (const GgufValue& v : keys.file().metadata) {
    const std::string_view prefix = v.key.substr(0, v.key.find('.'));
    if (v.key.starts_with(arch.name() + ".")) return true;
    if (other.empty() && prefix != "general" && find_architecture(prefix)) other = prefix;
  }
  if (!other.empty())
    keys.error("contradiction", "general.architecture",
               {"the file names {} but its keys are those of {}", arch.name(), other},
               {"--assume general.architecture={}", other});
  return other.empty();
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
      keys.report().error(
          "list_length",
          {"{} must have {} numbers, one a pair, got {}", v->tensor, widest, v->values.size()},
          v->tensor, "convert the model again: the tensor belongs to heads of another width");
}

// Learned positions: one row a position, added to the embedding (tensor position_embd.weight).
void add_input(const Architecture& arch, const Hparams& h, Keys& keys, ModelSpec& m) {
  const std::string_view rule = arch.text("positions");
  const GgufTensor* table = keys.file().tensor("position_embd.weight");
  if (rule.empty() || (rule == "learned_if_present" && table == nullptr)) return;
  Sourced<Index> width;
  keys.take("embedding_length", width);
  if (width.value < 1 || width.value > 1000000)
    return keys.error("out_of_range", "embedding_length", "must be 1 to 1000000");
  Learned learned;
  learned.width = width.value;
  learned.rows = h.context.value;
  InputEncoding e{{{learned, {}}, Origin::class_default, arch.program()}};
  e.tensors = {"position_embd.weight"};
  e.positions = learned.rows;
  e.rows_key = "context_length";
  m.input.push_back(std::move(e));
}

// T5: the decoder's layers are the model's, the encoder's stand in a tower.
void add_layers(const Architecture& arch, const Hparams& h, const DivisorTensors& divisors,
                Keys& keys, ModelSpec& m) {
  const Index length = m.context.value;
  const bool two_stacks = arch.flag("encoder_too");
  auto layers = usual(h.run_layers);
  if (two_stacks) keys.take("decoder_block_count", layers);
  if (layers.value < 1 || layers.value > 512)
    return keys.error("out_of_range", "decoder_block_count", "must be 1 to 512");
  const auto stack = [&](const Hparams& of, Index count, std::vector<LayerSpec>& out) {
    for (Index il = 0; il < count && !keys.failed(); ++il) {
      out.push_back(lower_layer(arch, of, divisors, keys, il % h.run_layers, length));
      out.back().index = il;
      if (il > 0 && out[out.size() - 2].rotary == out.back().rotary)
        out.back().rotary = out[out.size() - 2].rotary;
    }
  };
  stack(h, layers.value, m.layers);
  if (!two_stacks) return;
  Hparams both_ways = h;
  both_ways.causal = arch.constant(false);
  m.towers.push_back({"encoder", {}});
  stack(both_ways, h.run_layers, m.towers.back().layers);
}

void read_into(Keys& keys, const ReadOptions& options, ModelSpec& m) {
  const auto arch = architecture_of(keys);
  if (!arch) return;
  m.model_type = arch->name();
  if (!carries_own_keys(*arch, keys)) return;
  const Hparams h = read_hparams(*arch, keys);
  m.context = h.context;
  if (h.context.value > 0) m.stated_context = h.context.value;
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

ModelSpec gguf::read_file(const GgufFile& file, const ReadOptions& options) {
  ModelSpec m;
  m.file = file.file;
  m.reader = "llama_cpp";
  Keys keys(file, options);
  read_into(keys, options, m);
  note_switches(m.layers, keys.report());
  keys.report_assumptions();
  m.findings = keys.report().take();
  return m;
}

ModelSpec read_gguf(std::span<const std::byte> bytes, const std::string& file,
                    const ReadOptions& options) {
  const GgufFile container = parse_gguf(bytes, file);
  if (options.reader == "transformers") return hf::read_as_transformers(container, file, options);
  if (!options.reader.empty() && options.reader != "llama_cpp")
    refuse_field("read", "reader", "must be transformers or llama_cpp", options.reader);
  return gguf::read_file(container, options);
}

}  // namespace posenc::v0
