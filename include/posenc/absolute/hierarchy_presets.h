// SPDX-License-Identifier: Apache-2.0
// Segatron's hierarchies: token in sentence, sentence in paragraph, paragraph in document.
#pragma once
#include "posenc/absolute/hierarchy.h"

namespace posenc::inline v0::hierarchy_presets {

// SegaBERT: three tables, added.
inline Hierarchy segatron_bert(Index width = 768, Index tokens = 512, Index sentences = 100,
                               Index paragraphs = 50) {
  Hierarchy s;
  s.width = width;
  s.rows = {tokens, sentences, paragraphs};
  return s;
}
// Segatron-XL: three sinusoids side by side, a third of the width made even for tokens and for
// sentences, the rest for paragraphs. At distances (distance_to_largest gives the rows of its code)
// and as the rows R of Transformer-XL's score.
inline Hierarchy segatron_xl(Index width) {
  Hierarchy s;
  const Index third = width / 3 + width / 3 % 2;
  s.width = width;
  s.rows = {0, 0, 0};
  s.widths = {third, third, width - 2 * third};
  s.layout = SineLayout::halves;
  return s;
}

}  // namespace posenc::v0::hierarchy_presets
