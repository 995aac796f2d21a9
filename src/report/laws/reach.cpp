// SPDX-License-Identifier: Apache-2.0
// posenc law decay, window and trained: how far a scheme and a stack of layers reach.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "append.h"
#include "attention_call.h"
#include "common.h"
#include "law.h"
#include "posenc/laws.h"

namespace posenc::report {
namespace {

std::string distance_text(const std::optional<Index>& d) {
  return d ? with_commas(*d) : std::string("beyond 2^40");
}

Json distance_json(const std::optional<Index>& d) {
  return d ? Json(*d) : Json();
}

// "itself", "itself and 4,095 tokens before", ...
std::string side_text(const std::optional<Index>& reach, const char* side) {
  if (!reach) return fmt::format("every token {}", side);
  return fmt::format("{} tokens {}", with_commas(*reach), side);
}

// Layers as the options say, or a model's.
std::vector<AttentionSpec> stack_of(const LawOptions& o) {
  std::vector<AttentionSpec> layers;
  if (!o.subject.text.empty()) {
    if (o.window || o.layers || o.chunk || o.both)
      throw UsageError("--window, --layers, --chunk and --both describe a stack without MODEL");
    const Subject s = read_subject(o.subject);
    if (!s.model) throw UsageError("window reads a MODEL or --window; a SCHEME has no window");
    for (const LayerSpec& layer : layers_of(*s.model, o.subject)) layers.push_back(layer.attention);
    if (layers.empty()) throw InputError(s.model->file + ": no layers are described");
    return layers;
  }
  if (o.window.has_value() == o.chunk.has_value())
    throw UsageError("window needs a MODEL, or --layers with one of --window and --chunk");
  if (!o.layers) throw UsageError("--layers N is needed: the number of layers with the window");
  AttentionSpec layer;
  layer.right = 0;
  if (o.chunk) {
    layer.kind = AttentionKind::chunked;
    layer.chunk = *o.chunk;
    if (o.both) layer.right.reset();
  } else {
    layer.kind = AttentionKind::sliding;
    layer.left = o.both ? *o.window / 2 : *o.window - 1;
    if (o.both) layer.right = *o.window / 2;
  }
  layers.assign(static_cast<std::size_t>(*o.layers), layer);
  return layers;
}

}  // namespace

LawAnswer decay_law(const LawOptions& o) {
  SubjectOptions chosen = o.subject;
  chosen.sizes = {.heads = o.heads, .head_dim = o.head_dim};
  const Subject subject = read_subject(chosen);
  const ScoreEncodings e = bias_encodings(subject, chosen);
  const BiasByDistance bias = [&](std::span<const Index> distances) {
    const PositionList list{
        explicit_positions(std::vector<Index>(distances.begin(), distances.end())),
        {static_cast<Index>(distances.size())}};
    return distance_bias(e, chosen, o.params.empty() ? chosen.arrays : o.params, list, o.heads,
                         o.head_dim, o.inputs)
        .doubles();
  };
  const std::vector<BiasReach> reach = bias_reach(bias, o.heads, o.share);
  LawAnswer a;
  a.line("share", o.share, number_text(o.share) + " of the weight at distance 0");
  a.values.set("heads", o.heads);
  Json past = Json::array(), future = Json::array();
  append(a.text, "\n  {:>6}{:>20}{:>20}\n", "head", "keys before", "keys after");
  for (std::size_t h = 0; h < reach.size(); ++h) {
    past.push(distance_json(reach[h].past));
    future.push(distance_json(reach[h].future));
    append(a.text, "  {:>6}{:>20}{:>20}\n", h, distance_text(reach[h].past),
           distance_text(reach[h].future));
  }
  a.values.set("past", std::move(past));
  a.values.set("future", std::move(future));
  a.notes.emplace_back("It is the factor of the bias alone; what q and k say multiplies it.");
  return a;
}

LawAnswer window_law(const LawOptions& o) {
  const std::vector<AttentionSpec> layers = stack_of(o);
  const ReceptiveField field = receptive_field(layers);
  LawAnswer a;
  const auto count = static_cast<Index>(layers.size());
  Index unbounded = 0;
  for (const AttentionSpec& layer : layers)
    unbounded += layer.kind == AttentionKind::linear ||
                 (layer.attends() && !layer.left && layer.kind != AttentionKind::chunked);
  a.line("layers", count,
         unbounded ? fmt::format("{}, {} of them without a window", count, unbounded)
                   : std::to_string(count));
  a.line("back", distance_json(field.back), side_text(field.back, "before its own"));
  a.line("ahead", distance_json(field.ahead), side_text(field.ahead, "after its own"));
  std::optional<Index> all;
  if (field.back && field.ahead) all = *field.back + *field.ahead + 1;
  a.line("tokens", distance_json(all),
         all ? with_commas(*all) + ", its own included" : "no bound by windows");
  if (o.sinks) {
    a.line("sinks", *o.sinks, fmt::format("{} first tokens, seen by every layer", *o.sinks));
    a.notes.emplace_back(
        "Sink tokens are visible at any distance, but they see nothing after themselves: they "
        "carry "
        "nothing from the text between.");
  }
  a.notes.emplace_back(
      "It is an upper bound: what comes from the far end has passed through every layer.");
  return a;
}

LawAnswer trained_law(const LawOptions& o) {
  const Subject s = read_subject(o.subject);
  std::vector<Encoding> encodings;
  std::set<std::string> seen;
  const auto add = [&](const Encoding& e) {
    if (seen.insert(to_text(e)).second) encodings.push_back(e);
  };
  Index trained = o.trained.value_or(0), length = o.subject.context.value_or(0);
  if (s.encoding) {
    add(*s.encoding);
  } else {
    for (const InputEncoding& e : s.model->input) add(e.value);
    for (const LayerSpec& layer : layers_of(*s.model, o.subject))
      if (!o.subject.layer || *o.subject.layer == layer.index)
        for (const LayerEncoding& e : layer.encodings) add(e.value);
    if (encodings.empty()) throw InputError(s.model->file + ": no encoding is described");
    if (!o.trained) trained = s.model->trained_context.value_or(0);
    if (!o.subject.context) length = s.model->context.value;
  }
  if (trained == 0)
    throw UsageError("--trained N is needed: the length in tokens that the model was trained on");
  LawAnswer a;
  a.line("trained", trained, with_commas(trained) + " tokens");
  Json list = Json::array();
  for (const Encoding& e : encodings) {
    const TrainedRange r = trained_range(e, trained, {length}, o.head_dim);
    list.push(Json::object({{"scheme", to_text(e)},
                            {"unseen", std::string(enum_text(r.unseen))},
                            {"longest", distance_json(r.longest)},
                            {"reason", r.reason}}));
    append(a.text, "\n  {}\n  {:<26} {}\n  {}\n", to_text(e), "longest",
           r.longest ? with_commas(*r.longest) + " tokens" : "no end", r.reason);
  }
  a.values.set("encodings", std::move(list));
  a.notes.emplace_back(
      "No end does not mean that a model stays good: attention over more keys than in training is "
      "new for every scheme.");
  return a;
}

}  // namespace posenc::report
