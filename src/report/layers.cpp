// SPDX-License-Identifier: Apache-2.0
// Which layer of a model a verb shows.
#include <fmt/format.h>

#include "common.h"
#include "notes.h"
#include "posenc/core/describe.h"

namespace posenc::report {

const std::vector<LayerSpec>& layers_of(const ModelSpec& m, const SubjectOptions& o) {
  if (o.tower.empty()) return m.layers;
  std::string known;
  for (const Tower& t : m.towers) {
    known += (known.empty() ? "" : ", ") + t.name;
    if (t.name == o.tower) return t.layers;
  }
  throw InputError(fmt::format("{}: no tower \"{}\"; it has: {}", m.file, o.tower,
                               known.empty() ? "none" : known));
}

const LayerSpec& chosen_layer(const ModelSpec& m, const SubjectOptions& o) {
  const std::vector<LayerSpec>& layers = layers_of(m, o);
  if (o.layer) {
    if (*o.layer < 0 || *o.layer >= static_cast<Index>(layers.size()))
      throw InputError(fmt::format("{}: --layer must be 0 to {}, got {}", m.file,
                                   static_cast<Index>(layers.size()) - 1, *o.layer));
    return layers[static_cast<std::size_t>(*o.layer)];
  }
  for (const LayerSpec& l : layers)
    if (l.rotary) return l;
  if (layers.empty()) throw InputError(m.file + ": no layers are described");
  return layers.front();
}

void say_which(const ModelSpec& m, const SubjectOptions& o, const LayerSpec& taken) {
  if (o.layer) return;
  const auto attends = [](const LayerSpec& l) { return l.attention.attends(); };
  for (const LayerSpec& l : layers_of(m, o))
    if (attends(l) && l.rotary != taken.rotary) {
      note(fmt::format("{}: layers rotate differently; this is layer {} ({}), --layer {} another\n",
                       m.file, taken.index, enum_text(taken.attention.kind), l.index));
      return;
    }
}

}  // namespace posenc::report
